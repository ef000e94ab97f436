"""Whatever /openapi.json says that can be asked has an answer of the form it says, as schemathesis tries it out.

OpenAI's own document comes with no package that could be installed, so the one that is held to is kvgate's.
"""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engine_adapters.remote.openai_compatible import OpenAICompatibleEngine
from gateway.relay.remote import Remote
from gateway.served import Backend
from gateway.surface.routes import KEPT_PATHS, PATHS
from tests.gateway.relay.fake_engine import MODEL, fake_engine, whole
from tests.gateway.relay.serving import relaying
from tests.gateway.scripted_engine import MODEL as SCRIPTED
from tests.gateway.scripted_engine import BytePrompts, ScriptedEngine

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 20  # of each operation
ALIKE = {path for paths in PATHS.values() for path in paths[1:]}  # other names of the same


@pytest.fixture(scope="module")
def document() -> Iterator[BaseSchema]:
    with fake_engine(lambda connection, _: connection.reply(whole(0))) as engine:
        remote = Remote(OpenAICompatibleEngine("fake", engine.url, (MODEL,)), {MODEL: MODEL})
        with relaying([remote], backend=Backend(ScriptedEngine(), BytePrompts())) as gateway:
            yield schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")


def operations(document: BaseSchema) -> list[APIOperation]:
    return [found.ok() for found in document.get_all_operations()]


def test_every_path_is_in_the_document(document: BaseSchema) -> None:
    there = {(operation.method.upper(), operation.path) for operation in operations(document)}
    assert there >= {("POST", path) for paths in PATHS.values() for path in paths} | set(KEPT_PATHS.values())


def test_every_operation_answers_as_the_document_says(document: BaseSchema) -> None:
    for operation in operations(document):
        if operation.path not in ALIKE:
            try_out(operation)


def try_out(operation: APIOperation) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def answers(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            # Of random names there would be no model; those that there are get further.
            case.body["model"] = MODEL if len(case.body["model"]) % 2 else SCRIPTED
        case.call_and_validate(checks=CHECKS, timeout=60)

    answers()
