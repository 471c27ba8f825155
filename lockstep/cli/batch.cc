#include "lockstep/cli/batch.h"

#include <condition_variable>
#include <memory>
#include <mutex>

#include "lockstep/cli/report.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kLook{100};
constexpr int kMaxRefusalsInVain = 50;  // looks, while no request of ours is with the engine

// Shared with the engine's thread; kept alive by the sinks.
struct Board {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Answer> answers;
  std::vector<runtime::RequestId> to_cancel;
  size_t num_done = 0;
  size_t num_tokens = 0;
};

void take_event(Board& board, size_t index, const runtime::Event& event, const TokenSink& sink) {
  const std::lock_guard lock(board.mutex);
  Answer& answer = board.answers[index];
  for (const runtime::OutputToken& token : event.tokens) {
    answer.tokens.push_back(token);
    ++board.num_tokens;
    if (sink && !sink(index, token)) board.to_cancel.push_back(event.id);
  }
  if (event.prompt_scores) answer.scores = event.prompt_scores;
  if (event.finish != runtime::FinishReason::kNotFinished) {
    answer.finish = event.finish;
    answer.stop_token_id = event.stop_token_id;
    answer.error = event.error;
    ++board.num_done;
  }
  board.changed.notify_all();
}

}  // namespace

BatchResult run_batch(runtime::Engine& engine, std::vector<runtime::Request> requests, std::string_view what,
                      const TokenSink& sink) {
  const auto& stop = interrupted();
  const auto board = std::make_shared<Board>();
  board->answers.resize(requests.size());
  std::vector<runtime::RequestId> ids;
  ProgressLine progress;
  size_t next = 0;
  int num_refusals_in_vain = 0;
  bool was_interrupted = false;

  std::unique_lock lock(board->mutex);
  while (board->num_done < requests.size()) {
    while (next < requests.size() && !was_interrupted) {
      lock.unlock();  // the sink may be called before submit() returns
      const size_t index = next;
      auto id = engine.submit(requests[index], [board, index, &sink](const runtime::Event& event) {
        take_event(*board, index, event, sink);
      });
      lock.lock();
      // Full: wait for one to end. The last event of a request comes before its place is free, so also after
      // all have ended; an engine that takes nothing although it has nothing to do will not take this either.
      if (!id && id.error().code == ErrorCode::kUnavailable) {
        if (board->num_done < next || ++num_refusals_in_vain < kMaxRefusalsInVain) break;
      }
      num_refusals_in_vain = 0;
      ++next;
      if (id) {
        ids.push_back(*id);
      } else {
        board->answers[index] = {.finish = runtime::FinishReason::kError,
                                 .error = id.error().message,
                                 .error_code = id.error().code};
        ++board->num_done;
      }
    }
    board->changed.wait_for(lock, kLook);
    std::vector<runtime::RequestId> cancel;
    std::swap(cancel, board->to_cancel);
    if (stop.load() != 0 && !was_interrupted) {
      was_interrupted = true;
      cancel = ids;
      for (; next < requests.size(); ++next) {
        board->answers[next].finish = runtime::FinishReason::kCancelled;
        ++board->num_done;
      }
    }
    const std::string line = fmt::format("{}: {} of {} done, {} tokens", what, board->num_done,
                                         requests.size(), board->num_tokens);
    lock.unlock();
    progress.show(line);
    for (const runtime::RequestId id : cancel) engine.cancel(id);
    lock.lock();
  }
  return {std::move(board->answers), was_interrupted};
}

}  // namespace lockstep::cli
