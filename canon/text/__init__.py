"""Lines of a text and what guards them: where a rule may edit, and where the text is something's exact form."""

from canon.text.announced import may_ask_for_form, may_refer_to_form
from canon.text.guard import Guard
from canon.text.indentation import is_key
from canon.text.lines import Line, lines_of

__all__ = ["Guard", "Line", "is_key", "lines_of", "may_ask_for_form", "may_refer_to_form"]
