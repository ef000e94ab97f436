"""A request of the Responses API and what an engine keeps of it: from which response it goes on, and its own id."""

from typing import Any

from engine_adapters.remote.relay import Account
from gateway.errors import ApiError
from gateway.relay.body import RelayedBody
from gateway.responses.bindings import Binding, ResponseBindings
from gateway.tenants.tenant import DEFAULT, Tenant


class KeptResponse:
    """One request to `engine`."""

    def __init__(self, wanted: RelayedBody, tenant: Tenant, engine: str, bindings: ResponseBindings) -> None:
        self._wanted = wanted
        self._tenant = tenant
        self._engine = engine
        self._bindings = bindings

    async def replica(self) -> str | None:
        """The only one that can go on from what the request names; None: all can.

        Raises:
            ApiError: 404, what it names is not kept here, or is another tenant's.
        """
        if self._tenant is not DEFAULT:
            self._refuse_unbound()
        previous = self._wanted.previous_response_id
        if previous is None:
            return None
        if not isinstance(previous, str):
            raise ApiError(
                400,
                "Invalid value for 'previous_response_id': it is a string.",
                param="previous_response_id",
                code="invalid_type",
            )
        binding = await self._bindings.find(self._tenant.name, previous)
        if binding is None or binding.engine != self._engine:
            raise not_kept(previous, "previous_response_id")
        return binding.replica

    def _refuse_unbound(self) -> None:
        """Of tenants that are told apart none may name what nothing here binds to one of them."""
        if self._wanted.conversation is not None:
            raise not_kept(self._wanted.conversation, "conversation")
        given = self._wanted.input
        for place, item in enumerate(given if isinstance(given, list) else ()):
            if isinstance(item, dict) and item.get("type") == "item_reference":
                raise not_kept(item.get("id"), f"input[{place}].id")

    async def told(self, replica: str, account: Account) -> None:
        """The engine has named its answer: whoever asks for it by that name is sent to this replica."""
        if account.response_id is not None and self._wanted.store is not False:
            await self._bindings.bind(self._tenant.name, account.response_id, Binding(self._engine, replica))


def not_kept(name: Any, param: str | None) -> ApiError:
    """HTTP 404, alike for what never was, what is gone, and what is another's."""
    what = param.partition("[")[0] if param else "response"
    shown = str(name)[:100]
    code = "previous_response_not_found" if param == "previous_response_id" else "response_not_found"
    return ApiError(404, f"There is no {what} '{shown}' here.", param=param, code=code)
