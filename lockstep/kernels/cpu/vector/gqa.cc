#include <algorithm>

#include "lockstep/kernels/cpu/scalar_ops.h"
#include "lockstep/kernels/cpu/vector/attention_block.h"

namespace lockstep::kernels::cpu {
namespace {

// Some rows of a sequence and the heads of one group: query i is head i mod size of row i / size.
class GroupRun {
 public:
  GroupRun(const GqaArgs& args, const GqaPart& part, AttentionScratch& scratch)
      : args_(args),
        sequence_(args.sequences[static_cast<size_t>(part.sequence)]),
        heads_(part.heads),
        column_(part.column),
        rows_(part.rows),
        first_position_(int64_t{sequence_.context} - sequence_.num_rows + rows_.begin),
        head_dim_(args.q.shape[2]),
        scratch_(scratch),
        q_(view_of(scratch.queries.data(), {rows_.size() * heads_.size(), head_dim_})),
        out_(view_of(scratch.outs.data(), {rows_.size() * heads_.size(), head_dim_})) {}

  void run() {
    for_each_query([&](int64_t query, int64_t row, int64_t head) {
      std::copy_n(head_of(args_.q, row, head), head_dim_, row_of<float>(q_, query));
      std::fill_n(row_of<float>(out_, query), head_dim_, 0.0f);
    });
    scratch_.state.assign(static_cast<size_t>(q_.shape[0]), {});
    if (!args_.sinks.empty()) {
      // As if a token of weight 1 and value 0 had passed before all others.
      for_each_query([&](int64_t query, int64_t /*row*/, int64_t head) {
        with_elements(args_.sinks, [&](const auto* sinks) {
          scratch_.state[static_cast<size_t>(query)] = {.highest = to_float(sinks[head]), .sum = 1};
        });
      });
    }
    const int64_t end = first_position_ + rows_.size();  // of the tokens that any of the rows sees
    for (int64_t begin = first_seen(first_position_) / kTokenBlock * kTokenBlock; begin < end;
         begin += kTokenBlock) {
      attend({begin, std::min(begin + kTokenBlock, end)});
    }
    divide_by_sums(out_, scratch_.state.data());
    for_each_query([&](int64_t query, int64_t row, int64_t head) {
      std::copy_n(row_of<float>(out_, query), head_dim_, head_of(args_.out, row, head));
    });
  }

 private:
  template <class Body>
  void for_each_query(Body&& body) {
    for (int64_t query = 0; query < q_.shape[0]; ++query)
      body(query, sequence_.first_row + rows_.begin + query / heads_.size(),
           heads_.begin + query % heads_.size());
  }

  int64_t first_seen(int64_t position) const {
    return args_.window == 0 ? 0 : std::max<int64_t>(0, position + 1 - args_.window);
  }

  void attend(Range tokens) {
    const TokenRows rows(sequence_, args_.page_size, tokens.begin, tokens.size());
    vector_copy_columns({.cache = args_.k, .rows = rows.all(), .column = column_, .width = head_dim_},
                        scratch_.keys.data(), kTokenBlock);
    vector_copy_rows({.cache = args_.v, .rows = rows.all(), .column = column_, .width = head_dim_},
                     scratch_.values.data());
    // Rows before the block see none of it, nor do rows whose window begins behind it.
    const int64_t skip = std::max<int64_t>(0, tokens.begin - first_position_);
    int64_t stop = rows_.size();
    while (stop > skip && first_seen(first_position_ + stop - 1) >= tokens.end) --stop;
    const int64_t first = skip * heads_.size(), count = (stop - skip) * heads_.size();
    score_columns(q_.row_range(first, count), tokens.size());
    attend_block(
        view_of(scratch_.values.data(), {tokens.size(), head_dim_}), out_.row_range(first, count),
        args_.scale,
        [&](int64_t i) {
          const int64_t position = first_position_ + skip + i / heads_.size();
          return Range{std::max<int64_t>(0, first_seen(position) - tokens.begin),
                       std::min(tokens.size(), position + 1 - tokens.begin)};
        },
        scratch_.state.data() + first, scratch_);
  }

  // Keys lie in columns, so that a vector holds the products of as many tokens.
  void score_columns(const TensorView& q, int64_t count) {
    const int64_t padded = (count + kPaddedRows - 1) / kPaddedRows * kPaddedRows;
    vector_matmul({.x = q,
                   .w = matrix(scratch_.keys.data(), head_dim_, padded, kTokenBlock),
                   .out = matrix(scratch_.scores.data(), q.shape[0], padded, kTokenBlock)},
                  ChainFrom::kZero);
  }

  const GqaArgs& args_;
  const PagedSequence& sequence_;
  const Range heads_;
  const int64_t column_;
  const Range rows_;
  const int64_t first_position_, head_dim_;
  AttentionScratch& scratch_;
  const TensorView q_, out_;
};

}  // namespace

std::vector<GqaPart> parts_of(const GqaArgs& args) {
  std::vector<GqaPart> parts;
  const int64_t heads = args.q.shape[1];
  for (int64_t sequence = 0; sequence < std::ssize(args.sequences); ++sequence) {
    int64_t end = args.sequences[static_cast<size_t>(sequence)].num_rows;
    while (end > 0) {  // later rows see more
      const int64_t most_heads = std::min<int64_t>(heads, args.group);
      const int64_t begin =
          std::max<int64_t>(0, end - std::max<int64_t>(1, kRowBlock / std::max<int64_t>(1, most_heads)));
      for (int64_t head = 0, column = 0; head < heads; column += args.q.shape[2]) {
        const int64_t before =
            head == 0 ? args.first_in_group : 0;  // heads of the group that another rank has
        const int64_t behind = std::min(heads, head + args.group - before);
        parts.push_back(
            {.sequence = sequence, .heads = {head, behind}, .column = column, .rows = {begin, end}});
        head = behind;
      }
      end = begin;
    }
  }
  return parts;
}

void vector_gqa(const GqaArgs& args, const GqaPart& part, AttentionScratch& scratch) {
  scratch.reserve(part.rows.size() * part.heads.size(), args.q.shape[2], args.q.shape[2]);
  GroupRun(args, part, scratch).run();
}

}  // namespace lockstep::kernels::cpu
