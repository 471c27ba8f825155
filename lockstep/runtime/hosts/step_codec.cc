#include "lockstep/runtime/hosts/step_codec.h"

#include <algorithm>

#include "lockstep/planning/agreement.h"

namespace lockstep::runtime {
namespace {

using collectives::ByteReader;
using collectives::ByteWriter;
using collectives::WrongBytes;

std::span<const int32_t> span_of(const std::vector<int32_t>& values) { return values; }

// The names of all fields stand here, so that a field that is added does not compile until it is carried.
void write_counts(const planning::ReplicaCounts& counts, ByteWriter& writer) {
  const auto& [num_requests, num_target_rows, num_draft_rows, logit_rows, prompt_rows] = counts;
  writer.put(num_requests);
  writer.put(num_target_rows);
  writer.put(num_draft_rows);
  writer.put_array(span_of(logit_rows));
  writer.put_array(span_of(prompt_rows));
}

void write_plan(const planning::StepPlan& plan, ByteWriter& writer) {
  const auto& [step, regime, protocol, bucket, forward, counts, padded_rows, rows_per_home,
               logit_rows_per_home, max_rows_of_any_home, places, hash] = plan;
  writer.put(step);
  writer.put(regime);
  writer.put(protocol);
  writer.put(bucket);
  writer.put(forward);
  writer.put<uint64_t>(counts.size());
  for (const planning::ReplicaCounts& one : counts) write_counts(one, writer);
  writer.put_array(span_of(padded_rows));
  writer.put_array(span_of(rows_per_home));
  writer.put_array(span_of(logit_rows_per_home));
  writer.put(max_rows_of_any_home);
  writer.put<uint64_t>(places.size());
  for (const std::vector<int32_t>& of_replica : places) writer.put_array(span_of(of_replica));
  writer.put(hash);
}

void write_sequence(const SequenceRows& rows, ByteWriter& writer) {
  const auto& [id, kind, wanted, use, token_ids, context, page_table, slot, load_slot, save_slot, version] =
      rows;
  static_cast<void>(version);  // the scheduler's own
  writer.put(id);
  writer.put(kind);
  writer.put(wanted);
  writer.put(use);
  writer.put_array(span_of(token_ids));
  writer.put(context);
  writer.put_array(span_of(page_table));
  writer.put(slot);
  writer.put(load_slot);
  writer.put(save_slot);
}

std::vector<int32_t> read_values(ByteReader& reader, int64_t most) {
  const auto values = reader.get_array<int32_t>(static_cast<size_t>(most));
  return {values.begin(), values.end()};
}

size_t read_size(ByteReader& reader, const char* what, int64_t most) {
  const auto size = reader.get<uint64_t>();
  if (size > static_cast<uint64_t>(most))
    throw WrongBytes(fmt::format("{} {}, at most {}", size, what, most));
  return static_cast<size_t>(size);
}

template <class T>
T read_choice(ByteReader& reader, const char* what, T last) {
  const T value = reader.get<T>();
  if (value > last) throw WrongBytes(fmt::format("{} {}", what, static_cast<int>(value)));
  return value;
}

int32_t read_within(ByteReader& reader, const char* what, int64_t least, int64_t most) {
  const auto value = reader.get<int32_t>();
  if (value < least || value > most)
    throw WrongBytes(fmt::format("{} {} is not between {} and {}", what, value, least, most));
  return value;
}

void check_within(const std::vector<int32_t>& values, const char* what, int64_t end) {
  for (const int32_t value : values)
    if (value < 0 || value >= end)
      throw WrongBytes(fmt::format("{} {} is not between 0 and {}", what, value, end - 1));
}

planning::ReplicaCounts read_counts(ByteReader& reader, const planning::Capacity& capacity,
                                    planning::Forward forward) {
  planning::ReplicaCounts counts;
  counts.num_requests = read_within(reader, "requests", 0, capacity.max_requests);
  counts.num_target_rows = read_within(reader, "rows", 0, capacity.max_rows);
  counts.num_draft_rows = read_within(reader, "draft rows", 0, capacity.max_rows);
  counts.logit_rows = read_values(reader, capacity.max_logit_rows);
  check_within(counts.logit_rows, "wanted row", planning::num_rows(counts, forward));
  if (!std::is_sorted(counts.logit_rows.begin(), counts.logit_rows.end()))
    throw WrongBytes(fmt::format("{} wanted rows are out of order", counts.logit_rows.size()));
  counts.prompt_rows = read_values(reader, capacity.max_requests);
  int64_t of_prompts = 0;
  for (const int32_t rows : counts.prompt_rows) {
    if (rows < 1) throw WrongBytes(fmt::format("a prompt of {} rows", rows));
    of_prompts += rows;
  }
  if (of_prompts > counts.num_target_rows)
    throw WrongBytes(fmt::format("{} rows of prompts among {}", of_prompts, counts.num_target_rows));
  return counts;
}

planning::StepPlan read_plan(ByteReader& reader, const planning::StepShape& shape) {
  const int64_t ranks = int64_t{shape.num_replicas} * shape.ranks_per_replica;
  planning::StepPlan plan;
  plan.step = reader.get<uint64_t>();
  plan.regime = read_choice(reader, "regime", planning::Regime::kPrefill);
  plan.protocol = read_choice(reader, "protocol", planning::Protocol::kNormal);
  plan.bucket = reader.get<int32_t>();
  plan.forward = read_choice(reader, "forward", planning::Forward::kDraft);
  for (size_t left = read_size(reader, "replicas", shape.num_replicas); left > 0; --left)
    plan.counts.push_back(read_counts(reader, shape.capacity, plan.forward));
  plan.padded_rows = read_values(reader, shape.num_replicas);
  plan.rows_per_home = read_values(reader, ranks);
  plan.logit_rows_per_home = read_values(reader, ranks);
  plan.max_rows_of_any_home = reader.get<int32_t>();
  for (size_t left = read_size(reader, "replicas' places", shape.num_replicas); left > 0; --left)
    check_within(plan.places.emplace_back(read_values(reader, shape.capacity.max_rows)), "place",
                 shape.capacity.max_rows);
  plan.hash = reader.get<uint64_t>();
  return plan;
}

SequenceRows read_sequence(ByteReader& reader, const StepBounds& bounds) {
  const int64_t tokens = int64_t{bounds.pages_per_replica} * bounds.page_size;
  SequenceRows rows;
  rows.id = reader.get<RequestId>();
  rows.kind = read_choice(reader, "kind of row", RowKind::kDecode);
  rows.wanted = read_choice(reader, "wanted logits", WantedLogits::kEach);
  rows.use = read_choice(reader, "use of logits", LogitUse::kLargest);
  rows.token_ids = read_values(reader, bounds.shape.capacity.max_rows);
  check_within(rows.token_ids, "token", bounds.vocab);
  rows.context = read_within(reader, "context", std::ssize(rows.token_ids), tokens);
  rows.page_table = read_values(reader, bounds.pages_per_replica);
  check_within(rows.page_table, "page", bounds.pages_per_replica);
  if (std::ssize(rows.page_table) * bounds.page_size < rows.context)
    throw WrongBytes(fmt::format("{} pages for a context of {}", rows.page_table.size(), rows.context));
  rows.slot = read_within(reader, "slot", 0, bounds.shape.capacity.max_requests - 1);
  rows.load_slot = read_within(reader, "slot to load", -1, bounds.num_slots - 1);
  rows.save_slot = read_within(reader, "slot to save", -1, bounds.num_slots - 1);
  return rows;
}

void check_rows(const StepInput& input) {
  for (size_t replica = 0; replica < input.replicas.size(); ++replica) {
    int64_t rows = 0;
    for (const SequenceRows& sequence : input.replicas[replica]) rows += std::ssize(sequence.token_ids);
    if (rows != planning::num_rows(input.plan.counts[replica], input.plan.forward))
      throw WrongBytes(fmt::format("{} rows of replica {} where {} are counted", rows, replica,
                                   planning::num_rows(input.plan.counts[replica], input.plan.forward)));
  }
}

// A draft says for each of its rows which kept row it follows.
void check_kept_rows(const StepInput& input) {
  const bool drafts = input.plan.forward == planning::Forward::kDraft;
  if (input.kept_rows.size() != (drafts ? input.replicas.size() : 0))
    throw WrongBytes(fmt::format("kept rows of {} replicas in a {} step", input.kept_rows.size(),
                                 planning::name_of(input.plan.forward)));
  for (size_t replica = 0; replica < input.kept_rows.size(); ++replica) {
    const std::vector<int32_t>& rows = input.kept_rows[replica];
    if (std::ssize(rows) != input.plan.counts[replica].num_draft_rows)
      throw WrongBytes(fmt::format("{} kept rows of replica {} where {} are counted", rows.size(), replica,
                                   input.plan.counts[replica].num_draft_rows));
  }
}

}  // namespace

void write_step(const StepInput& input, ByteWriter& writer) {
  const auto& [plan, replicas, num_valid_logits, kept_rows] = input;
  write_plan(plan, writer);
  writer.put(num_valid_logits);
  writer.put<uint64_t>(replicas.size());
  for (const auto& sequences : replicas) {
    writer.put<uint64_t>(sequences.size());
    for (const SequenceRows& rows : sequences) write_sequence(rows, writer);
  }
  writer.put<uint64_t>(kept_rows.size());
  for (const auto& rows : kept_rows) writer.put_array(span_of(rows));
}

StepInput read_step(ByteReader& reader, const StepBounds& bounds) {
  const planning::StepShape& shape = bounds.shape;
  const planning::StepPlan theirs = read_plan(reader, shape);
  if (std::ssize(theirs.counts) != shape.num_replicas)
    throw WrongBytes(fmt::format("counts of {} replicas, not {}", theirs.counts.size(), shape.num_replicas));
  StepInput input;
  input.num_valid_logits = read_within(reader, "valid logits", 0, bounds.vocab);
  for (size_t left = read_size(reader, "replicas", shape.num_replicas); left > 0; --left) {
    auto& sequences = input.replicas.emplace_back();
    for (size_t more = read_size(reader, "sequences", shape.capacity.max_requests); more > 0; --more)
      sequences.push_back(read_sequence(reader, bounds));
  }
  for (size_t left = read_size(reader, "kept rows", shape.num_replicas); left > 0; --left)
    check_within(input.kept_rows.emplace_back(read_values(reader, shape.capacity.max_rows)), "kept row",
                 shape.capacity.max_rows);
  if (input.replicas.size() != theirs.counts.size())
    throw WrongBytes(fmt::format("{} replicas, not {}", input.replicas.size(), theirs.counts.size()));
  input.plan = planning::make_step_plan(theirs.step, shape, theirs.counts, theirs.forward);
  check_rows(input);
  check_kept_rows(input);
  if (input.plan.hash != theirs.hash || planning::hash_of(theirs) != theirs.hash) {
    const planning::StepPlan plans[] = {theirs, input.plan};
    const auto differences = planning::check_agreement(plans);
    throw Fatal(fmt::format("the head's plan of step {} is not this process's: {}", theirs.step,
                            differences.empty()
                                ? fmt::format("hashes {:016x} and {:016x}", theirs.hash, input.plan.hash)
                                : differences.front().says));
  }
  return input;
}

}  // namespace lockstep::runtime
