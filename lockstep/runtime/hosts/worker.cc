#include "lockstep/runtime/hosts/worker.h"

#include "lockstep/runtime/hosts/step_codec.h"
#include "lockstep/runtime/hosts/work_messages.h"
#include "lockstep/runtime/loaded_engine.h"

namespace lockstep::runtime {
namespace {

using collectives::ByteReader;
using collectives::ByteWriter;

constexpr std::chrono::milliseconds kLong{3600000};

void say_to_head(collectives::Links& links, const ByteWriter& writer) {
  const auto part = writer.bytes();
  links.send(0, collectives::FrameKind::kWork, {&part, 1});
}

void run_step(collectives::Links& links, LoadedRanks& ranks, const StepBounds& bounds,
              WorkBox::Letter letter) {
  ByteReader reader(letter.frame.span());
  if (letter.process != 0 || reader.get<WorkKind>() != WorkKind::kStep)
    throw collectives::WrongBytes(fmt::format("{} sends no steps", links.name_of(letter.process)));
  const StepInput input = read_step(reader, bounds);
  reader.expect_end();
  ranks.run(input, [&](const LogitRow& row) { send_logits(links, input.plan.step, row); });
  ByteWriter done;
  done.put(WorkKind::kStepDone);
  done.put(input.plan.step);
  done.put(input.plan.hash);
  say_to_head(links, done);
}

}  // namespace

Status serve_ranks(const EngineConfig& config, const Progress& progress) {
  auto joined = join_engine(config, progress);
  if (!joined) return joined.error();
  const std::shared_ptr<collectives::Links> links = joined->links;
  WorkBox box(*links);
  const auto parts = rank_parts(config, *joined, progress);
  auto ranks = parts ? make_rank_executor(*parts) : parts.error();
  if (!ranks) {
    links->fail(ranks.error().message);
    return ranks.error();
  }
  const StepBounds bounds{.shape = joined->described.limits.shape,
                          .page_size = joined->described.limits.page_size,
                          .pages_per_replica = joined->described.limits.pages_per_replica,
                          .num_slots = joined->described.limits.shape.capacity.max_requests +
                                       joined->described.limits.num_snapshots,
                          .vocab = joined->described.planned.model.vocab};
  try {
    ByteWriter loaded;
    loaded.put(WorkKind::kLoaded);
    say_to_head(*links, loaded);
    for (;;)
      if (auto letter = box.wait_for(kLong)) run_step(*links, **ranks, bounds, *std::move(letter));
  } catch (const std::exception& failure) {  // Fatal, WrongBytes
    if (links->has_left(0)) return Done{};
    links->fail(failure.what());
    return Error{ErrorCode::kInternal, links->failure(), ""};
  }
}

}  // namespace lockstep::runtime
