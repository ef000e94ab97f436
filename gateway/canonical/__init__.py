"""Canon on live traffic: which policy a request gets, what goes on, what is told and remembered."""
