"""Earlier turns go out as they were sent before, and tail notes are pinned where they were first sent.

It never touches what clients or models wrote, but for giving back a model's tool calls as that model wrote them.
"""

from canon.context import RuleContext
from canon.memory.walk import walk
from canon.requests.paths import tool_key

NAME = "conversation_memory"


def apply(context: RuleContext) -> None:
    conversation = context.conversation
    if conversation is None or not conversation.turns or not context.policy.acts(NAME):
        return
    sent = walk(context, conversation)
    draft = context.draft
    names = [key for tool in context.view.tools() if (key := tool_key(tool)) is not None]
    bodies = [draft.original, draft.body] if draft.changed else [draft.body]
    conversation.sent(names, sent, *bodies)
