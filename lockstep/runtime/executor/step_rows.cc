#include "lockstep/runtime/executor/step_rows.h"

namespace lockstep::runtime {
namespace {

// Rows of a prompt that follow each other in the sequence and stand together.
void add_runs(const SequenceRows& sequence, const planning::StepPlan& plan, int32_t replica, int32_t first,
              std::vector<kernels::PagedSequence>& list) {
  const auto count = static_cast<int32_t>(sequence.token_ids.size());
  const auto place = [&](int32_t row) { return planning::place_of(plan, replica, first + row); };
  for (int32_t row = 0; row < count;) {
    int32_t end = row + 1;
    while (end < count && place(end) == place(end - 1) + 1) ++end;
    list.push_back({.page_table = sequence.page_table,
                    .first_row = place(row),
                    .num_rows = end - row,
                    .context = sequence.context - count + end,
                    .slot = sequence.slot});
    row = end;
  }
}

}  // namespace

StepRows flatten(const StepInput& input) {
  StepRows rows;
  size_t first_of_replica = 0;
  for (size_t replica = 0; replica < input.replicas.size(); ++replica) {
    const auto padded = static_cast<size_t>(input.plan.padded_rows[replica]);
    rows.token_ids.resize(first_of_replica + padded, 0);
    rows.positions.resize(first_of_replica + padded, 0);
    ReplicaSequences& sequences = rows.replicas.emplace_back();
    int32_t next = 0;
    for (const SequenceRows& sequence : input.replicas[replica]) {
      const auto count = static_cast<int32_t>(sequence.token_ids.size());
      LOCKSTEP_CHECK_LE(static_cast<size_t>(next + count), padded);
      LOCKSTEP_CHECK_LE(count, sequence.context);
      const auto of = static_cast<int32_t>(replica);
      for (int32_t row = 0; row < count; ++row) {
        const auto at =
            first_of_replica + static_cast<size_t>(planning::place_of(input.plan, of, next + row));
        rows.token_ids[at] = sequence.token_ids[static_cast<size_t>(row)];
        rows.positions[at] = sequence.context - count + row;
      }
      if (sequence.kind == RowKind::kPrompt) {
        add_runs(sequence, input.plan, of, next, sequences.prompts);
      } else {
        for (int32_t row = 0; row < count; ++row)
          sequences.decodes.push_back({.page_table = sequence.page_table,
                                       .first_row = planning::place_of(input.plan, of, next + row),
                                       .num_rows = 1,
                                       .context = sequence.context - count + row + 1,
                                       .slot = sequence.slot});
      }
      next += count;
    }
    LOCKSTEP_CHECK_EQ(next, planning::num_rows(input.plan.counts[replica], input.plan.forward));
    first_of_replica += padded;
  }
  return rows;
}

}  // namespace lockstep::runtime
