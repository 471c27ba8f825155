#include "lockstep/runtime/executor/step_rows.h"

namespace lockstep::runtime {

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
      for (int32_t row = 0; row < count; ++row) {
        rows.token_ids[first_of_replica + static_cast<size_t>(next + row)] =
            sequence.token_ids[static_cast<size_t>(row)];
        rows.positions[first_of_replica + static_cast<size_t>(next + row)] = sequence.context - count + row;
      }
      const bool decodes = sequence.kind == RowKind::kDecode;
      auto& list = decodes ? sequences.decodes : sequences.prompts;
      const int32_t rows_an_entry = decodes ? 1 : count;
      for (int32_t row = 0; row < count; row += rows_an_entry)
        list.push_back({.page_table = sequence.page_table,
                        .first_row = next + row,
                        .num_rows = rows_an_entry,
                        .context = sequence.context - count + row + rows_an_entry,
                        .slot = sequence.slot});
      next += count;
    }
    LOCKSTEP_CHECK_EQ(next, planning::num_rows(input.plan.counts[replica], input.plan.forward));
    first_of_replica += padded;
  }
  return rows;
}

}  // namespace lockstep::runtime
