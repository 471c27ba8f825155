#!/usr/bin/env python3
"""Uses `lockstep serve` through OpenAI's own Python client, as a program that was written for OpenAI's servers would.

usage: openai_client_test.py LOCKSTEP_BINARY REPOSITORY

The client is installed from PyPI into build/api-venv at the first run; where PyPI cannot be reached the test says so and
ends as skipped (exit code 77).
"""

import asyncio
import json
import os
import sys
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client_venv import run_in_venv  # noqa: E402
from lockstep_server import LockstepServer  # noqa: E402

CALCULATOR = {"type": "function", "function": {
    "name": "calculator", "description": "Evaluates an arithmetic expression.",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}}}
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}
MODEL = "tutor-deepseek-v3"


def user(text):
    return [{"role": "user", "content": text}]


def calculate(arguments):
    left, sign, right = json.loads(arguments)["expression"].split(" ")
    return str({"+": int(left) + int(right), "-": int(left) - int(right), "*": int(left) * int(right)}[sign])


class Server(unittest.TestCase):
    """Tests against one server for all of them."""

    @classmethod
    def setUpClass(cls):
        cls.server = LockstepServer(BINARY, f"{REPOSITORY}/models/{MODEL}")
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.__exit__()

    def chat(self, messages, **options):
        options.setdefault("temperature", 0)
        return self.client.chat.completions.create(model=MODEL, messages=messages, **options)


class Chat(Server):
    def test_answer(self):
        answer = self.chat(user("What is 12 + 30?"))
        self.assertEqual(answer.choices[0].message.content, "The answer is 42.")
        self.assertEqual(answer.choices[0].message.reasoning_content, "12 + 30 = 42")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.model, MODEL)

    def test_usage_adds_up(self):
        usage = self.chat(user("What is 12 + 30?")).usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertEqual(usage.prompt_tokens, self.server.post("/tokenize", {"messages": user("What is 12 + 30?")})["count"])
        self.assertGreater(usage.completion_tokens_details.reasoning_tokens, 5)
        self.assertLess(usage.completion_tokens_details.reasoning_tokens, usage.completion_tokens)

    def test_types_of_the_client_accept_every_field(self):
        raw = self.client.chat.completions.with_raw_response.create(
            model=MODEL, messages=user("What is 12 + 30?"), tools=[CALCULATOR], logprobs=True, top_logprobs=2)
        openai.types.chat.ChatCompletion.model_validate_json(raw.http_response.content, strict=True)
        raw = self.client.completions.with_raw_response.create(model=MODEL, prompt="12 + 30", logprobs=2, max_tokens=3)
        openai.types.Completion.model_validate_json(raw.http_response.content, strict=True)
        with self.client.chat.completions.with_streaming_response.create(
                model=MODEL, messages=user("What is 12 + 30?"), stream=True, logprobs=True, tools=[CALCULATOR],
                stream_options={"include_usage": True}) as raw:
            lines = [line for line in raw.iter_lines() if line]
        self.assertEqual(lines[-1], "data: [DONE]")
        for line in lines[:-1]:
            openai.types.chat.ChatCompletionChunk.model_validate_json(line.removeprefix("data: "), strict=True)

    def test_stream_is_the_whole_answer(self):
        whole = self.chat(user("What is 12 + 30?"))
        content = reasoning = ""
        finishes, usages, roles = [], [], []
        for chunk in self.chat(user("What is 12 + 30?"), stream=True, stream_options={"include_usage": True}):
            if not chunk.choices:
                usages.append(chunk.usage)
                continue
            self.assertFalse(usages, "something follows the usage")
            delta = chunk.choices[0].delta
            roles += [delta.role] if delta.role else []
            content += delta.content or ""
            reasoning += getattr(delta, "reasoning_content", None) or ""
            finishes += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
        self.assertEqual(content, whole.choices[0].message.content)
        self.assertEqual(reasoning, whole.choices[0].message.reasoning_content)
        self.assertEqual((roles, finishes), (["assistant"], ["stop"]))
        # But for the tokens that the cache held: the second request finds what the first has computed.
        counted = [usage.model_copy(update={"prompt_tokens_details": None}) for usage in usages + [whole.usage]]
        self.assertEqual(counted[:-1], counted[-1:])

    def test_thinking_switched_off(self):
        message = self.chat(user("What is 12 + 30?"), extra_body=PLAIN).choices[0].message
        self.assertEqual(message.content, "12 + 30 = 42. The answer is 42.")
        self.assertFalse(hasattr(message, "reasoning_content"))

    def test_several_turns_with_parts_and_a_system_message(self):
        first = self.chat([{"role": "system", "content": "You are a tutor."}, *user("What is 12 + 30?")]).choices[0].message
        answer = self.chat([
            {"role": "developer", "content": "You are a tutor."}, *user("What is 12 + 30?"), first.model_dump(),
            {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "9 * 7?"}]}])
        self.assertEqual(answer.choices[0].message.content, "The answer is 63.")

    def test_two_choices_with_a_seed_can_be_repeated(self):
        options = {"n": 2, "seed": 11, "temperature": 2, "extra_body": PLAIN, "max_tokens": 12}
        texts = [[c.message.content for c in self.chat(user("Hello"), **options).choices] for _ in range(2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0][0], texts[0][1])
        alone = self.chat(user("Hello"), **(options | {"n": 1})).choices[0].message.content
        self.assertEqual(alone, texts[0][0])

    def test_stop_strings(self):
        whole = self.chat(user("Hello")).choices[0].message.content
        for stop in (["arithmetic"], "oblem", ["nothing", "thme"]):
            for stream in (False, True):
                answer = self.chat(user("Hello"), stop=stop, stream=stream)
                text = "".join(c.choices[0].delta.content or "" for c in answer) if stream else answer.choices[0].message.content
                places = [whole.find(s) for s in ([stop] if isinstance(stop, str) else stop) if s in whole]
                self.assertEqual(text, whole[:min(places)])

    def test_length(self):
        for key in ("max_tokens", "max_completion_tokens"):
            answer = self.chat(user("Hello"), **{key: 5})
            self.assertEqual((answer.choices[0].finish_reason, answer.usage.completion_tokens), ("length", 5))

    def test_logprobs(self):
        choice = self.chat(user("What is 12 + 30?"), logprobs=True, top_logprobs=3).choices[0]
        self.assertEqual("".join(entry.token for entry in choice.logprobs.content), choice.message.content)
        for entry in choice.logprobs.content:
            self.assertEqual(bytes(entry.bytes).decode(), entry.token)
            self.assertEqual(len(entry.top_logprobs), 3)
            values = [top.logprob for top in entry.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLessEqual(values[0], 0)
            self.assertEqual((entry.top_logprobs[0].token, values[0]), (entry.token, entry.logprob))  # greedy

    def test_logit_bias_forbids_a_token(self):
        first = self.chat(user("Hello"), max_tokens=3, extra_body=PLAIN).choices[0].message.content
        token = self.server.post("/tokenize", {"prompt": first})["tokens"][0]
        other = self.chat(user("Hello"), max_tokens=3, extra_body=PLAIN, logit_bias={str(token): -100}).choices[0].message.content
        self.assertNotEqual(first[:1], other[:1])

    def test_replica_of_the_header(self):
        for replica in ("0", "1"):
            answer = self.chat(user("What is 12 + 30?"), extra_headers={"X-Data-Parallel-Rank": replica})
            self.assertEqual(answer.choices[0].message.content, "The answer is 42.")


class Tools(Server):
    def test_round_trip(self):
        messages = user("What is 925 - 715?")
        choice = self.chat(messages, tools=[CALCULATOR], tool_choice="auto").choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        self.assertIsNone(choice.message.content)
        (call,) = choice.message.tool_calls
        self.assertEqual((call.type, call.function.name), ("function", "calculator"))
        self.assertEqual(json.loads(call.function.arguments), {"expression": "925 - 715"})
        messages += [choice.message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": calculate(call.function.arguments)}]
        last = self.chat(messages, tools=[CALCULATOR]).choices[0]
        self.assertEqual((last.message.content, last.finish_reason), ("The answer is 210.", "stop"))

    def test_round_trip_of_two_calls_in_a_stream(self):
        messages = user("What is 12 + 30 and what is 9 * 7?")
        calls = {}
        for chunk in self.chat(messages, tools=[CALCULATOR], stream=True):
            for piece in chunk.choices[0].delta.tool_calls or []:
                call = calls.setdefault(piece.index, {"id": piece.id, "type": piece.type, "function": {"name": "", "arguments": ""}})
                call["function"]["name"] += piece.function.name or ""
                call["function"]["arguments"] += piece.function.arguments or ""
            finish = chunk.choices[0].finish_reason
        self.assertEqual(finish, "tool_calls")
        self.assertEqual([calls[i]["function"] for i in sorted(calls)],
                         [{"name": "calculator", "arguments": '{"expression": "12 + 30"}'},
                          {"name": "calculator", "arguments": '{"expression": "9 * 7"}'}])
        messages.append({"role": "assistant", "content": None, "tool_calls": [calls[i] for i in sorted(calls)]})
        for i in sorted(calls, reverse=True):  # in the wrong order: the ids say what belongs to what
            messages.append({"role": "tool", "tool_call_id": calls[i]["id"], "content": calculate(calls[i]["function"]["arguments"])})
        self.assertEqual(self.chat(messages, tools=[CALCULATOR]).choices[0].message.content, "The answers are 42 and 63.")

    def test_clients_own_accumulation_of_a_stream(self):
        with self.client.chat.completions.stream(model=MODEL, messages=user("What is 925 - 715?"), tools=[CALCULATOR],
                                                 temperature=0) as stream:
            message = stream.get_final_completion().choices[0].message
        self.assertEqual(message.tool_calls[0].function.arguments, '{"expression": "925 - 715"}')

    def test_tool_choice_none_shows_no_tools(self):
        answer = self.chat(user("What is 12 + 30?"), tools=[CALCULATOR], tool_choice="none")
        without = self.chat(user("What is 12 + 30?"))
        self.assertEqual(answer.usage.prompt_tokens, without.usage.prompt_tokens)
        self.assertIsNone(answer.choices[0].message.tool_calls)

    def test_one_call_at_most(self):
        answer = self.chat(user("What is 12 + 30 and what is 9 * 7?"), tools=[CALCULATOR], parallel_tool_calls=False)
        self.assertEqual(len(answer.choices[0].message.tool_calls), 1)
        self.assertEqual(answer.choices[0].finish_reason, "tool_calls")


class Forms(Server):
    """Answers of a given form, whatever the model would rather say."""

    SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 99},
                                               "sure": {"enum": ["yes", "no"]}}, "required": ["sum", "sure"], "additionalProperties": False}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        try:
            cls.client.completions.create(model=MODEL, prompt="a", max_tokens=1, extra_body={"regex": "a"})
        except openai.BadRequestError as refused:
            cls.tearDownClass()
            if "made without xgrammar" in str(refused):
                raise unittest.SkipTest("this build has no grammar library") from None
            raise

    def json_schema(self, schema):
        return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}

    def check(self, text):
        value = json.loads(text)
        self.assertEqual(sorted(value), ["sum", "sure"])
        self.assertIn(value["sum"], range(100))
        self.assertIn(value["sure"], ("yes", "no"))

    def test_json_of_a_schema_behind_free_reasoning(self):
        choice = self.chat(user("What is 12 + 30?"), response_format=self.json_schema(self.SCHEMA)).choices[0]
        self.assertEqual((choice.message.reasoning_content, choice.finish_reason), ("12 + 30 = 42", "stop"))
        self.check(choice.message.content)

    def test_json_whatever_is_drawn(self):
        for seed in range(8):
            choice = self.chat(user("Hello"), response_format=self.json_schema(self.SCHEMA), temperature=2, seed=seed, max_tokens=300,
                               extra_body=PLAIN).choices[0]
            if choice.finish_reason == "stop":
                self.check(choice.message.content)

    def test_a_stream_is_the_whole(self):
        options = {"response_format": self.json_schema(self.SCHEMA), "extra_body": PLAIN}
        whole = self.chat(user("What is 1 + 2?"), **options).choices[0].message.content
        pieces = [c.choices[0].delta.content or "" for c in self.chat(user("What is 1 + 2?"), stream=True, **options) if c.choices]
        self.assertEqual("".join(pieces), whole)

    def test_choices_and_patterns(self):
        for form, good in (({"guided_choice": ["red", "blue"]}, ("red", "blue")), ({"regex": "[ab]{3}"}, "aaa aab aba abb baa bab bba bbb".split()),
                           ({"ebnf": 'root ::= "x" | "y"'}, ("x", "y"))):
            self.assertIn(self.chat(user("Hello"), extra_body=PLAIN | form).choices[0].message.content, good)
            self.assertIn(self.client.completions.create(model=MODEL, prompt="7", extra_body=form).choices[0].text, good)

    def test_calls_that_must_be_made(self):
        tool = {"type": "function", "function": {"name": "report", "strict": True, "parameters": self.SCHEMA}}
        for choice in ("required", {"type": "function", "function": {"name": "report"}}):
            answer = self.chat(user("What is 12 + 30?"), tools=[CALCULATOR, tool], tool_choice=choice, max_tokens=300,
                               parallel_tool_calls=False).choices[0]
            self.assertEqual(answer.finish_reason, "tool_calls")
            self.assertIsNone(answer.message.content)
            for call in answer.message.tool_calls:
                self.assertIn(call.function.name, ("report", "calculator") if choice == "required" else ("report",))
                if call.function.name == "report":
                    self.check(call.function.arguments)

    def test_a_strict_tool_may_be_left_alone_or_called(self):
        tool = json.loads(json.dumps(CALCULATOR))
        tool["function"]["strict"] = True
        answer = self.chat(user("What is 925 - 715?"), tools=[tool]).choices[0]
        self.assertEqual(json.loads(answer.message.tool_calls[0].function.arguments), {"expression": "925 - 715"})
        self.assertEqual(self.chat(user("Hello"), tools=[tool]).choices[0].finish_reason, "stop")

    def test_what_would_not_be_enforced_is_refused(self):
        for options, param in (
                ({"response_format": self.json_schema({"type": "array", "uniqueItems": True})}, "response_format.json_schema.schema.uniqueItems"),
                ({"extra_body": {"regex": "(?=a)b"}}, "regex"), ({"extra_body": {"ebnf": "root ::= ("}}, "ebnf"),
                ({"response_format": {"type": "json_object"}, "tools": [CALCULATOR]}, "response_format"),
                ({"extra_body": {"regex": "a", "ignore_eos": True}}, "ignore_eos")):
            with self.subTest(options=options), self.assertRaises(openai.BadRequestError) as caught:
                self.chat(user("Hello"), **options)
            self.assertEqual(caught.exception.param, param)


class Completions(Server):
    def complete(self, prompt, **options):
        return self.client.completions.create(model=MODEL, prompt=prompt, temperature=0, **options)

    def test_prompts_of_every_kind_agree(self):
        text = "<｜begin▁of▁sentence｜><｜User｜>What is 12 + 30?<｜Assistant｜><think>\n"
        ids = self.server.post("/tokenize", {"prompt": text})["tokens"]
        expected = "12 + 30 = 42\n</think>\n\nThe answer is 42."
        for prompt in (text, [text, text], ids, [ids, ids]):
            choices = self.complete(prompt, max_tokens=100).choices
            self.assertEqual({choice.text for choice in choices}, {expected})
            self.assertEqual(len(choices), 2 if isinstance(prompt[0], (list, str)) and not isinstance(prompt, str) else 1)
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids})["prompt"], text)

    def test_echo_and_logprobs(self):
        self.assertTrue(self.complete("What is 12", echo=True, max_tokens=2).choices[0].text.startswith("What is 12"))
        # A text that was generated has as a prompt the log probabilities that it was generated with.
        prompt = self.server.post("/tokenize", {"prompt": "What is 12"})["tokens"]
        made = self.complete(prompt, logprobs=1, max_tokens=6).choices[0]
        whole = self.server.post("/tokenize", {"prompt": "What is 12" + made.text})["tokens"]
        scored = self.complete(whole, logprobs=1, max_tokens=0, echo=True).choices[0].logprobs
        self.assertEqual((len(scored.tokens), scored.token_logprobs[0]), (len(whole), None))
        self.assertEqual((whole[:len(prompt)], len(whole)), (prompt, len(prompt) + 6), "another text is needed for what follows")
        for one, other in zip(scored.token_logprobs[len(prompt):], made.logprobs.token_logprobs):
            self.assertAlmostEqual(one, other, delta=1e-4)
        choice = self.complete("What is 12", logprobs=2, max_tokens=6).choices[0]
        self.assertEqual("".join(choice.logprobs.tokens), choice.text)
        for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset):
            self.assertEqual(choice.text[offset:offset + len(token)], token)
        for value, top in zip(choice.logprobs.token_logprobs, choice.logprobs.top_logprobs):
            self.assertEqual(value, max(top.values()))

    def test_stream(self):
        whole = self.complete("What is 12", max_tokens=20).choices[0].text
        self.assertEqual("".join(c.choices[0].text for c in self.complete("What is 12", max_tokens=20, stream=True)), whole)

    def test_models(self):
        (model,) = self.client.models.list().data
        self.assertEqual((model.id, model.object), (MODEL, "model"))
        self.assertEqual(self.client.models.retrieve(MODEL), model)


class Native(Server):
    """SGLang's /generate gives what completions give."""

    def complete(self, prompt, **options):
        return self.client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=12, **options).choices

    def generate(self, **body):
        return self.server.post("/generate", {"sampling_params": {"temperature": 0, "max_new_tokens": 12}} | body)

    def test_text_ids_and_lists(self):
        (whole,) = self.complete("7 + 5 =")
        one = self.generate(text="7 + 5 =", rid="mine")
        ids = self.server.post("/tokenize", {"prompt": "7 + 5 ="})["tokens"]
        self.assertEqual((one["text"], one["meta_info"]["id"], one["meta_info"]["prompt_tokens"]), (whole.text, "mine", len(ids)))
        self.assertEqual(one["meta_info"]["finish_reason"]["type"], whole.finish_reason)
        self.assertEqual(self.generate(input_ids=ids)["text"], whole.text)
        both = self.generate(text=["7 + 5 =", "Hello"])
        self.assertEqual([answer["text"] for answer in both], [whole.text, self.complete("Hello")[0].text])

    def test_events_hold_the_text_so_far(self):
        whole = self.generate(text="7 + 5 =")
        body = json.dumps({"text": "7 + 5 =", "stream": True, "sampling_params": {"temperature": 0, "max_new_tokens": 12}})
        request = urllib.request.Request(self.server.url + "/generate", body.encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            events = [line[6:] for line in reply.read().decode().splitlines() if line]
        self.assertEqual(events.pop(), "[DONE]")
        texts = [json.loads(event)["text"] for event in events]
        self.assertEqual(texts, sorted(texts, key=len))
        self.assertEqual((texts[-1], json.loads(events[-1])["meta_info"]["finish_reason"]), (whole["text"], whole["meta_info"]["finish_reason"]))

    def test_errors_name_the_clients_field(self):
        for body, param in (({}, "text"), ({"text": "a", "input_ids": [1]}, "text"), ({"text": 5}, "text"), ({"input_ids": [-1]}, "input_ids[0]"),
                            ({"text": "a", "sampling_params": {"temperature": 9}}, "sampling_params.temperature"),
                            ({"text": "a", "sampling_params": {"max_new_tokens": "x"}}, "sampling_params.max_new_tokens"),
                            ({"text": "a", "sampling_params": {"new": 1}}, "sampling_params.new"),
                            ({"text": "a", "return_logprob": True}, "return_logprob")):
            request = urllib.request.Request(self.server.url + "/generate", json.dumps(body).encode(), {"Content-Type": "application/json"})
            with self.subTest(body=body), self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request)
            self.assertEqual((caught.exception.code, json.load(caught.exception)["error"]["param"]), (400, param))

    def test_flushed_beginnings_are_computed_again(self):
        prompt = self.server.post("/tokenize", {"prompt": "One two three four five six seven eight nine ten. " * 20})["tokens"]
        cached = lambda: self.generate(input_ids=prompt, sampling_params={"max_new_tokens": 1})["meta_info"]["cached_tokens"]  # noqa: E731
        for _ in range(4):  # each replica has a cache of its own
            cached()
        self.assertGreater(cached(), 0)
        self.server.post("/flush_cache", {})
        self.assertEqual(cached(), 0)

    def test_server_info(self):
        with urllib.request.urlopen(self.server.url + "/get_server_info") as reply:
            info = json.load(reply)
        self.assertEqual((info["served_model_name"], info["status"], info["context_length"]), (MODEL, "ready", 4096))


class Errors(Server):
    def test_each_names_its_parameter(self):
        tool = {"type": "function", "function": {"name": "f"}}
        table = [
            ({"temperature": 3}, "temperature"), ({"top_p": -1}, "top_p"), ({"n": 0}, "n"), ({"max_tokens": 0}, "max_tokens"),
            ({"stop": [1]}, "stop[0]"), ({"logit_bias": {"x": 1}}, "logit_bias"), ({"top_logprobs": 2}, "top_logprobs"),
            ({"seed": "x"}, "seed"), ({"stream_options": {"include_usage": True}}, "stream_options"),
            ({"response_format": {"type": "xml"}}, "response_format.type"),
            ({"tools": [tool], "tool_choice": "always"}, "tool_choice"),
            ({"tools": [{"type": "function", "function": {"name": "no good"}}]}, "tools[0].function.name"),
            ({"tools": [{"type": "retrieval"}]}, "tools[0].type"), ({"messages": []}, "messages"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
             "messages[0].content[0].type"),
            ({"messages": user("x") + [{"role": "alien", "content": "x"}]}, "messages[1].role"),
        ]
        for options, param in table:
            for stream in (False, True):
                with self.subTest(options=options), self.assertRaises(openai.BadRequestError) as caught:
                    self.chat(**({"messages": user("Hello"), "stream": stream if "stream_options" not in options else False} | options))
                self.assertEqual((caught.exception.param, caught.exception.type), (param, "invalid_request_error"))
                self.assertIn(param, caught.exception.message)

    def test_prompt_too_long(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(user("7 " * 5000))
        self.assertEqual((caught.exception.code, caught.exception.param), ("context_length_exceeded", "messages"))
        self.assertIn("4096", caught.exception.message)

    def test_model_not_found(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="gpt-4", messages=user("Hello"))
        self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-4")

    def test_replica_that_is_not_there(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(user("Hello"), extra_headers={"X-Data-Parallel-Rank": "2"})
        self.assertEqual(caught.exception.param, "X-Data-Parallel-Rank")


class Streams(Server):
    def test_leaving_a_stream_frees_its_slot(self):
        stream = self.chat(user("Hello"), stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
        for _, chunk in zip(range(20), stream):
            self.assertIsNone(chunk.choices[0].finish_reason)
        self.assertFalse(self.server.is_idle())
        stream.close()
        self.assertTrue(self.server.becomes_idle(10), self.server.get("/live"))

    def test_many_at_once_get_what_one_alone_gets(self):
        questions = [f"What is {a} + {b}?" for a, b in zip(range(10, 30), range(70, 50, -1))]
        alone = [self.chat(user(q)).choices[0].message.content for q in questions]

        async def ask(client, question):
            text = ""
            async for chunk in await client.chat.completions.create(model=MODEL, messages=user(question), temperature=0, stream=True):
                text += chunk.choices[0].delta.content or ""
            return text

        async def ask_all():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0, timeout=120) as client:
                return await asyncio.gather(*(ask(client, q) for q in questions))

        self.assertEqual(asyncio.run(ask_all()), alone)


class Keys(unittest.TestCase):
    def test_wrong_and_right(self):
        with LockstepServer(BINARY, f"{REPOSITORY}/models/{MODEL}", ["--api-key", "right"]) as server:
            for key, outcome in (("wrong", openai.AuthenticationError), ("right", None)):
                with openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0) as client:
                    if outcome is None:
                        self.assertEqual(client.models.list().data[0].id, MODEL)
                        continue
                    with self.assertRaises(outcome) as caught:
                        client.models.list()
                    self.assertEqual(caught.exception.code, "invalid_api_key")
            self.assertFalse([line for line in server.lines if "right" in line or "wrong" in line], "a key was logged")


if __name__ == "__main__":
    BINARY, REPOSITORY = sys.argv[1], os.path.abspath(sys.argv[2])
    run_in_venv(REPOSITORY, __file__)
    import openai
    unittest.main(argv=sys.argv[:1])
