#!/usr/bin/env python3
"""Uses /v1/messages of `lockstep serve` through Anthropic's own Python client, whose types check every answer and event.

usage: messages_test.py LOCKSTEP_BINARY REPOSITORY
"""

import os
import sys
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client_venv import run_in_venv  # noqa: E402
from lockstep_server import LockstepServer  # noqa: E402

CALCULATOR = {"name": "calculator", "description": "Evaluates an arithmetic expression.",
              "input_schema": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}
GREEDY = {"temperature": 0}
PLAIN = {"type": "disabled"}
MODEL = "tutor-deepseek-v3"


def user(content):
    return {"role": "user", "content": content}


def all_input(message):
    """Tokens of the prompt, from the cache or not."""
    return message.usage.input_tokens + message.usage.cache_read_input_tokens


class Messages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = LockstepServer(BINARY, f"{REPOSITORY}/models/{MODEL}")
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="none", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.__exit__()

    def ask(self, *messages, **options):
        raw = self.client.messages.with_raw_response.create(model=MODEL, messages=messages, **({"max_tokens": 300, "extra_body": GREEDY} | options))
        return anthropic.types.Message.model_validate_json(raw.text(), strict=True)

    def stream(self, *messages, **options):
        events = list(self.client.messages.create(model=MODEL, messages=messages, stream=True, **({"max_tokens": 300, "extra_body": GREEDY} | options)))
        adapter = TypeAdapter(anthropic.types.RawMessageStreamEvent)
        for event in events:
            adapter.validate_python(event.to_dict(), strict=True)
        kinds = [event.type for event in events]
        self.assertEqual((kinds[0], kinds[-2:]), ("message_start", ["message_delta", "message_stop"]))
        open_block, blocks = None, 0
        for event in events[1:-2]:
            if event.type == "content_block_start":
                self.assertEqual((open_block, event.index), (None, blocks))
                open_block, blocks = event.index, blocks + 1
            else:
                self.assertEqual(event.index, open_block)
                if event.type == "content_block_stop":
                    open_block = None
        self.assertIsNone(open_block)
        return events

    def test_thinking_and_text(self):
        answer = self.ask(user("What is 12 + 30?"), thinking={"type": "enabled", "budget_tokens": 1024})
        self.assertEqual([block.type for block in answer.content], ["thinking", "text"])
        self.assertEqual((answer.content[0].thinking, answer.content[1].text), ("12 + 30 = 42", "The answer is 42."))
        self.assertEqual((answer.stop_reason, answer.stop_sequence, answer.role), ("end_turn", None, "assistant"))
        self.assertGreater(answer.usage.output_tokens_details.thinking_tokens, 0)
        plain = self.ask(user("What is 12 + 30?"), thinking=PLAIN)
        self.assertEqual([block.type for block in plain.content], ["text"])

    def test_a_stream_adds_up_to_the_whole(self):
        whole = self.ask(user("What is 12 + 30?"))
        with self.client.messages.stream(model=MODEL, max_tokens=300, messages=[user("What is 12 + 30?")], extra_body=GREEDY) as stream:
            summed = stream.get_final_message()
        self.assertEqual([block.to_dict() | {"citations": None} for block in summed.content],
                         [block.to_dict() | {"citations": None} for block in whole.content])
        self.assertEqual((summed.stop_reason, summed.usage.output_tokens, all_input(summed)), (whole.stop_reason, whole.usage.output_tokens, all_input(whole)))
        self.stream(user("What is 12 + 30?"))

    def test_a_call_and_its_result(self):
        whole = self.ask(user("What is 925 - 715?"), tools=[CALCULATOR])
        with self.client.messages.stream(model=MODEL, max_tokens=300, messages=[user("What is 925 - 715?")], tools=[CALCULATOR], extra_body=GREEDY) as stream:
            summed = stream.get_final_message()
        self.stream(user("What is 925 - 715?"), tools=[CALCULATOR])
        for answer in (whole, summed):
            call = answer.content[-1]
            self.assertEqual((call.type, call.name, call.input, answer.stop_reason), ("tool_use", "calculator", {"expression": "925 - 715"}, "tool_use"))
            for result in ("210", [{"type": "text", "text": "210"}]):
                final = self.ask(user("What is 925 - 715?"), {"role": "assistant", "content": [block.to_dict() for block in answer.content]},
                                 user([{"type": "tool_result", "tool_use_id": call.id, "content": result}]), tools=[CALCULATOR])
                self.assertIn("210", final.content[-1].text)

    def test_why_it_stopped(self):
        self.assertEqual(self.ask(user("What is 12 + 30?"), max_tokens=3).stop_reason, "max_tokens")
        stopped = self.ask(user("What is 12 + 30?"), stop_sequences=["nothing", " is"], thinking=PLAIN)
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", " is"))
        self.assertTrue(stopped.content[0].text.endswith("The answer"), stopped.content)
        (delta,) = [event.delta for event in self.stream(user("What is 12 + 30?"), stop_sequences=[" is"], thinking=PLAIN) if event.type == "message_delta"]
        self.assertEqual((delta.stop_reason, delta.stop_sequence), ("stop_sequence", " is"))

    def test_system_and_counting(self):
        with_system = self.client.messages.count_tokens(model=MODEL, messages=[user("What is 12 + 30?")], system="Answer briefly.").input_tokens
        answer = self.ask(user("What is 12 + 30?"), system=[{"type": "text", "text": "Answer briefly.", "cache_control": {"type": "ephemeral"}}])
        self.assertEqual(all_input(answer), with_system)
        self.assertLess(self.client.messages.count_tokens(model=MODEL, messages=[user("What is 12 + 30?")]).input_tokens, with_system)

    def test_calls_that_must_be_made(self):
        try:
            for choice in ({"type": "any"}, {"type": "tool", "name": "calculator", "disable_parallel_tool_use": True}):
                answer = self.ask(user("What is 12 + 30?"), tools=[CALCULATOR], tool_choice=choice)
                self.assertEqual([block.name for block in answer.content if block.type != "thinking"][:1], ["calculator"])
        except anthropic.BadRequestError as refused:
            if "made without xgrammar" in str(refused):
                self.skipTest("this build has no grammar library")
            raise
        self.assertNotIn("tool_use", [block.type for block in self.ask(user("What is 9 + 1?"), tools=[CALCULATOR], tool_choice={"type": "none"}).content])

    def test_errors_name_the_clients_field(self):
        image = {"type": "image", "source": {"type": "url", "url": "x"}}
        table = [
            ({"max_tokens": None}, "'max_tokens'"), ({"max_tokens": 0}, "'max_tokens'"), ({"messages": []}, "'messages'"),
            ({"messages": [user([image])]}, "'messages[0].content[0].type'"), ({"messages": [{"role": "alien", "content": "x"}]}, "'messages[0].role'"),
            ({"messages": [user("x"), {"role": "assistant", "content": "The"}]}, "'messages[1].role'"),
            ({"messages": [user([{"type": "tool_result", "content": "x"}])]}, "'messages[0].content[0].tool_use_id'"),
            ({"system": 5}, "'system'"), ({"temperature": 3}, "'temperature'"), ({"stop_sequences": [1]}, "'stop_sequences[0]'"),
            ({"tools": [{"name": "no good", "input_schema": {"type": "object"}}]}, "'tools[0].name'"),
            ({"tools": [{"name": "f", "input_schema": {"type": "array"}}]}, "'tools[0].input_schema.type'"),
            ({"tools": [{"name": "f"}]}, "'tools[0].input_schema'"), ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "'tools[0].type'"),
            ({"tools": [CALCULATOR], "tool_choice": {"type": "tool", "name": "other"}}, "'tool_choice.name'"),
            ({"tool_choice": {"type": "always"}}, "'tool_choice.type'"), ({"thinking": {"type": "much"}}, "'thinking.type'"),
        ]
        for body, place in table:
            for stream in (False, True):
                with self.subTest(body=body), self.assertRaises(anthropic.BadRequestError) as caught:
                    self.client.post("/v1/messages", cast_to=object, body={"max_tokens": 5, "messages": [user("Hello")], "stream": stream} | body)
                error = anthropic.types.ErrorResponse.model_validate(caught.exception.body, strict=True).error
                self.assertEqual(error.type, "invalid_request_error")
                self.assertIn(place, error.message)
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.client.messages.create(model="claude", max_tokens=5, messages=[user("Hello")])
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")


class Keys(unittest.TestCase):
    def test_wrong_and_right(self):
        with unittest.mock.patch.dict(os.environ, {"LOCKSTEP_API_KEY": "right"}), LockstepServer(BINARY, f"{REPOSITORY}/models/{MODEL}") as server:
            for key in ("wrong", "right"):
                with anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0) as client:
                    if key == "right":
                        self.assertGreater(client.messages.count_tokens(model=MODEL, messages=[user("Hi")]).input_tokens, 0)
                        continue
                    with self.assertRaises(anthropic.AuthenticationError) as caught:
                        client.messages.count_tokens(model=MODEL, messages=[user("Hi")])
                    self.assertEqual(caught.exception.body["error"]["type"], "authentication_error")


if __name__ == "__main__":
    BINARY, REPOSITORY = sys.argv[1], os.path.abspath(sys.argv[2])
    run_in_venv(REPOSITORY, __file__)
    import anthropic
    from pydantic import TypeAdapter
    unittest.main(argv=sys.argv[:1])
