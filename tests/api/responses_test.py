#!/usr/bin/env python3
"""Uses /v1/responses of `lockstep serve` through OpenAI's own Python client, whose types check every answer and event.

usage: responses_test.py LOCKSTEP_BINARY REPOSITORY
"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client_venv import run_in_venv  # noqa: E402
from lockstep_server import LockstepServer  # noqa: E402

CALCULATOR = {"type": "function", "name": "calculator", "description": "Evaluates an arithmetic expression.",
              "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}
MODEL = "tutor-deepseek-v3"


def events_in_order(events):
    """What must hold of any stream; raises AssertionError where it does not."""
    assert [event.sequence_number for event in events] == list(range(len(events))), "gaps in sequence_number"
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"], kinds[:2]
    assert kinds[-1] in ("response.completed", "response.incomplete"), kinds[-1]
    output = events[-1].response.output
    for index, item in enumerate(output):
        own = [event for event in events if getattr(event, "output_index", None) == index]
        assert (own[0].type, own[-1].type) == ("response.output_item.added", "response.output_item.done")
        assert own[0].item.id == item.id and own[-1].item == item
        assert all(event.item_id == item.id for event in own[1:-1])
        inner = [event.type for event in own[1:-1]]
        if item.type == "function_call":
            name, text = "response.function_call_arguments", item.arguments
            assert own[-2].arguments == text
        else:
            name = {"message": "response.output_text", "reasoning": "response.reasoning_text"}[item.type]
            text = item.content[0].text
            assert inner.pop(0) == "response.content_part.added" and inner.pop() == "response.content_part.done"
            assert own[1].part.text == "" and own[-2].part.text == text and own[-3].text == text
        assert inner == [name + ".delta"] * (len(inner) - 1) + [name + ".done"], inner
        assert "".join(event.delta for event in own if event.type == name + ".delta") == text


class Responses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = LockstepServer(BINARY, f"{REPOSITORY}/models/{MODEL}")
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.__exit__()

    def ask(self, prompt, **options):
        options.setdefault("temperature", 0)
        raw = self.client.responses.with_raw_response.create(model=MODEL, input=prompt, **options)
        return Response.model_validate_json(raw.text, strict=True)

    def stream(self, prompt, **options):
        events = list(self.client.responses.create(model=MODEL, input=prompt, temperature=0, stream=True, **options))
        adapter = TypeAdapter(ResponseStreamEvent)
        for event in events:
            adapter.validate_python(event.to_dict(), strict=True)
        events_in_order(events)
        return events

    def test_reasoning_and_text(self):
        answer = self.ask("What is 12 + 30?")
        self.assertEqual([item.type for item in answer.output], ["reasoning", "message"])
        self.assertEqual(answer.output[0].content[0].text, "12 + 30 = 42")
        self.assertEqual((answer.output_text, answer.status, answer.object), ("The answer is 42.", "completed", "response"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.input_tokens + usage.output_tokens)
        self.assertGreater(usage.output_tokens_details.reasoning_tokens, 0)
        self.assertGreaterEqual(answer.completed_at, answer.created_at)

    def test_a_stream_ends_with_the_whole_answer(self):
        whole = self.ask("What is 12 + 30?")
        last = self.stream("What is 12 + 30?")[-1].response
        self.assertEqual((last.output_text, last.status), (whole.output_text, "completed"))
        self.assertEqual((last.usage.input_tokens, last.usage.output_tokens), (whole.usage.input_tokens, whole.usage.output_tokens))

    def test_the_clients_own_accumulator_agrees(self):
        with self.client.responses.stream(model=MODEL, input="What is 12 + 30?", temperature=0) as stream:
            final = stream.until_done().get_final_response()
        self.assertEqual(final.output_text, "The answer is 42.")

    def test_cut_off(self):
        answer = self.ask("What is 12 + 30?", max_output_tokens=4)
        self.assertEqual((answer.status, answer.incomplete_details.reason), ("incomplete", "max_output_tokens"))
        self.assertEqual((answer.output[-1].status, answer.max_output_tokens), ("incomplete", 4))
        self.assertEqual(self.stream("What is 12 + 30?", max_output_tokens=4)[-1].type, "response.incomplete")

    def test_a_call_and_its_result(self):
        for events in (None, self.stream("What is 925 - 715?", tools=[CALCULATOR])):
            answer = self.ask("What is 925 - 715?", tools=[CALCULATOR]) if events is None else events[-1].response
            call = answer.output[-1]
            self.assertEqual((call.type, call.name, json.loads(call.arguments)), ("function_call", "calculator", {"expression": "925 - 715"}))
            history = [{"role": "user", "content": "What is 925 - 715?"}, *(item.to_dict() for item in answer.output),
                       {"type": "function_call_output", "call_id": call.call_id, "output": "210"}]
            self.assertIn("210", self.ask(history, tools=[CALCULATOR]).output_text)
            # The same by reference: only the result is sent.
            onwards = self.ask(history[-1:], tools=[CALCULATOR], previous_response_id=answer.id)
            self.assertIn("210", onwards.output_text)
            self.assertEqual(onwards.previous_response_id, answer.id)
            self.assertEqual(onwards.usage.input_tokens, self.ask(history, tools=[CALCULATOR]).usage.input_tokens)

    def test_stored_shown_deleted(self):
        answer = self.ask("What is 1 + 2?", metadata={"for": "test"})
        self.assertEqual(self.client.responses.retrieve(answer.id).to_dict(), answer.to_dict())
        self.client.responses.delete(answer.id)
        for gone in (answer.id, self.ask("What is 1 + 2?", store=False).id, "resp_none"):
            with self.assertRaises(openai.NotFoundError):
                self.client.responses.retrieve(gone)
            with self.assertRaises(openai.BadRequestError) as caught:
                self.ask("Go on", previous_response_id=gone)
            self.assertEqual(caught.exception.param, "previous_response_id")

    def test_instructions_are_a_system_message(self):
        text = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "What is 12 + 30?"}]
        one = self.ask("What is 12 + 30?", instructions="Answer briefly.")
        self.assertEqual((one.instructions, one.usage.input_tokens), ("Answer briefly.", self.ask(text).usage.input_tokens))

    def test_logprobs(self):
        answer = self.ask("What is 12 + 30?", top_logprobs=2, include=["message.output_text.logprobs"], extra_body=PLAIN)
        (part,) = answer.output[0].content
        self.assertEqual("".join(entry.token for entry in part.logprobs), part.text)
        self.assertTrue(all(len(entry.top_logprobs) == 2 for entry in part.logprobs))
        events = self.stream("What is 12 + 30?", top_logprobs=2, extra_body=PLAIN)
        deltas = [event for event in events if event.type == "response.output_text.delta"]
        self.assertEqual("".join(entry.token for event in deltas for entry in event.logprobs), part.text)

    def test_forms_and_forced_calls(self):
        schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
        try:
            self.ask("Hello", text={"format": {"type": "json_object"}}, max_output_tokens=1)
        except openai.BadRequestError as refused:
            if "made without xgrammar" in str(refused):
                raise unittest.SkipTest("this build has no grammar library") from None
            raise
        answer = self.ask("What is 12 + 30?", text={"format": {"type": "json_schema", "name": "sum", "schema": schema, "strict": True}}, extra_body=PLAIN)
        if answer.status == "completed":
            self.assertEqual(list(json.loads(answer.output_text)), ["sum"])
        for choice in ("required", {"type": "function", "name": "calculator"},
                       {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "calculator"}]}):
            answer = self.ask("What is 12 + 30?", tools=[CALCULATOR], tool_choice=choice, max_output_tokens=200)
            self.assertEqual([item.type for item in answer.output if item.type != "reasoning"], ["function_call"])

    def test_errors_name_the_clients_field(self):
        bad_tool = {"type": "function", "name": "no good"}
        table = [
            ({"input": []}, "input"), ({"input": 5}, "input"), ({"input": [{"type": "alien"}]}, "input[0].type"),
            ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0].type"),
            ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
            ({"temperature": 3}, "temperature"), ({"max_output_tokens": 0}, "max_output_tokens"),
            ({"tools": [bad_tool]}, "tools[0].name"), ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
            ({"tools": [CALCULATOR], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice.name"),
            ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "array", "uniqueItems": True}}}}, "text.format.schema.uniqueItems"),
            ({"text": {"format": {"type": "xml"}}}, "text.format.type"), ({"background": True}, "background"), ({"conversation": "c"}, "conversation"),
            ({"truncation": "auto"}, "truncation"), ({"include": ["all"]}, "include[0]"), ({"reasoning": {"effort": 5}}, "reasoning.effort"),
            ({"top_logprobs": 50}, "top_logprobs"),
        ]
        for body, param in table:
            for stream in (False, True):
                with self.subTest(body=body), self.assertRaises(openai.BadRequestError) as caught:
                    self.client.post("/responses", cast_to=object, body={"input": "Hello", "stream": stream} | body)
                self.assertEqual(caught.exception.param, param)
                self.assertIn(param, caught.exception.message)


class Keys(unittest.TestCase):
    def test_a_response_is_seen_only_by_whose_it_is(self):
        with LockstepServer(BINARY, f"{REPOSITORY}/models/{MODEL}", ["--api-key", "one", "--api-key", "two"]) as server:
            one, two = (openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0) for key in ("one", "two"))
            with one, two:
                answer = one.responses.create(model=MODEL, input="What is 1 + 2?", temperature=0)
                self.assertEqual(one.responses.retrieve(answer.id).id, answer.id)
                with self.assertRaises(openai.NotFoundError):
                    two.responses.retrieve(answer.id)
                with self.assertRaises(openai.BadRequestError):
                    two.responses.create(model=MODEL, input="What did I ask?", previous_response_id=answer.id)


if __name__ == "__main__":
    BINARY, REPOSITORY = sys.argv[1], os.path.abspath(sys.argv[2])
    run_in_venv(REPOSITORY, __file__)
    import openai
    from openai.types.responses import Response, ResponseStreamEvent
    from pydantic import TypeAdapter
    unittest.main(argv=sys.argv[:1])
