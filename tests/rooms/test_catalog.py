"""The list of models and the details of one, as a pure view of the registry."""

import json
from dataclasses import replace

from tests.core.making import MODEL, OTHER_MODEL, A, B, Book, C, at, described

from hivenet_router.core.clock import UnixTime
from hivenet_router.core.ids import ModelName
from hivenet_router.router.catalog import Json, model_detail, model_list

NOW, UNIX = at(10.0), UnixTime(1_764_000_010.9)


def listed(book: Book) -> Json:
    listed: Json = json.loads(b"".join(model_list(book.registry, now=NOW, unix=UNIX)))
    return listed


def test_without_agents_the_list_is_empty_and_has_no_ends() -> None:
    assert listed(Book()) == {"object": "list", "data": [], "has_more": False, "first_id": None, "last_id": None}


def test_one_model_in_the_words_of_both_sdks() -> None:
    book = Book()
    book.join(A, described(4))
    assert listed(book)["data"] == [
        {
            "id": "m",
            "object": "model",
            "created": 1_764_000_000,
            "owned_by": "hivenet",
            "type": "model",
            "display_name": "m",
            "created_at": "2025-11-24T16:00:00Z",
            "capability": "llm",
            "agents": {"total": 1, "healthy": 1, "total_capacity": 4, "engines": ["vllm"], "regions": ["EU-France"]},
        }
    ]


def test_models_are_sorted_and_replicas_are_one_entry() -> None:
    book = Book()
    book.join(A, described(model=OTHER_MODEL))
    book.join(B, described(3, region="EU-Spain", engine="sglang"))
    book.join(C, described(5))
    catalog = listed(book)
    assert (catalog["first_id"], catalog["last_id"]) == ("m", "n")
    [entry, other] = entries(catalog)
    assert (entry["id"], other["id"]) == ("m", "n")
    assert entry["agents"] == {
        "total": 2,
        "healthy": 2,
        "total_capacity": 8,
        "engines": ["sglang", "vllm"],
        "regions": ["EU-France", "EU-Spain"],
    }


def entries(catalog: Json) -> list[Json]:
    data = catalog["data"]
    assert isinstance(data, list)
    return data


def test_an_agent_without_a_link_is_counted_but_not_as_healthy() -> None:
    book = Book()
    book.join(A, described(4))
    book.registry.link_down(A)
    [entry] = entries(listed(book))
    assert entry["agents"] == {
        "total": 1,
        "healthy": 0,
        "total_capacity": 4,
        "engines": ["vllm"],
        "regions": ["EU-France"],
    }


def test_the_first_agent_that_says_something_about_the_model_is_believed() -> None:
    book = Book()
    book.join(A)
    book.join(B, replace(described(), llm_pretty_name="Model B", llm_info="from B", hide_llm=True))
    book.join(C, replace(described(), llm_pretty_name="Model C"))
    [entry] = entries(listed(book))
    assert (entry["pretty_name"], entry["display_name"], entry["info"]) == ("Model B", "Model B", "from B")
    assert entry["hide_llm"] is True


def test_the_details_name_the_agents_by_peer_id_and_leave_out_what_is_empty() -> None:
    book = Book()
    book.join(B, replace(described(2), machine=""))
    book.join(A, described(1))
    book.registry.heartbeat(A, backend_healthy=False, now=at(5.0))
    detail: Json = json.loads(b"".join(model_detail(book.registry, MODEL, now=NOW, unix=UNIX)))
    agents = detail["agents"]
    assert isinstance(agents, dict)
    assert agents["list"] == [
        {
            "peer_id": A,
            "engine": "vllm",
            "version": "1.0",
            "region": "EU-France",
            "organization": "ml-team",
            "machine": "gpu-1",
            "capacity": 1,
            "is_healthy": False,
            "last_seen": 1_764_000_005,
        },
        {
            "peer_id": B,
            "engine": "vllm",
            "version": "1.0",
            "region": "EU-France",
            "organization": "ml-team",
            "capacity": 2,
            "is_healthy": True,
            "last_seen": 1_764_000_000,
        },
    ]


def test_an_unknown_model_has_no_details_and_names_are_case_sensitive() -> None:
    book = Book()
    book.join(A)
    for name in ("M", "m ", "", "other"):
        assert not list(model_detail(book.registry, ModelName(name), now=NOW, unix=UNIX))


def test_the_time_of_the_first_registration_outlives_a_renewal() -> None:
    book = Book()
    book.join(A)
    book.registry.register(A, described(), now=at(9.0))
    [entry] = entries(listed(book))
    assert entry["created"] == 1_764_000_000
