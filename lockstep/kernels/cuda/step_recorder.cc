#include "lockstep/kernels/cuda/step_recorder.h"

#include <utility>

namespace lockstep::kernels::cuda {

StepRecorder::~StepRecorder() { forget_all(); }

void StepRecorder::forget_all() {
  for (auto& [key, recorded] : recorded_)
    if (recorded.graph != nullptr) cudaGraphExecDestroy(recorded.graph);
  recorded_.clear();
}

void StepRecorder::add(const TensorView& view) {
  add(view.data);
  add(static_cast<uint64_t>(view.dtype) * 8 + view.num_dims);
  for (size_t dim = 0; dim < view.num_dims; ++dim) {
    add(view.shape[dim]);
    add(view.stride[dim]);
  }
}

// What the ops noted. Their uploads wait for flush().
uint64_t StepRecorder::run(Mode mode, const std::function<void()>& body) {
  struct Plain {
    StepRecorder& of;
    ~Plain() {
      of.mode_ = Mode::kPlain;
      of.uploads_.end_step();
    }
  };
  mode_ = mode;
  noted_ = 0;
  const Plain plain{*this};
  body();
  return noted_;
}

cudaGraph_t StepRecorder::record(const std::function<void()>& body, uint64_t& noted) {
  uploads_.begin_step();
  expect_success(cudaStreamBeginCapture(gpu_.stream(), cudaStreamCaptureModeRelaxed),
                 "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    noted = run(Mode::kRecord, body);
  } catch (...) {
    cudaStreamEndCapture(gpu_.stream(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    throw;
  }
  expect_success(cudaStreamEndCapture(gpu_.stream(), &graph), "cudaStreamEndCapture");
  return graph;
}

// Comparing comes first also where there is nothing to compare with: what this step needs beyond the one that
// ran before it grows then, not while it is recorded.
void StepRecorder::update(Recorded& recorded, const std::function<void()>& body) {
  uploads_.begin_step();
  const uint64_t noted = run(Mode::kCompare, body);
  if (recorded.graph != nullptr && noted == recorded.noted) return;
  const cudaGraph_t graph = record(body, recorded.noted);
  if (recorded.graph != nullptr) cudaGraphExecDestroy(std::exchange(recorded.graph, nullptr));
  const cudaError_t made = cudaGraphInstantiate(&recorded.graph, graph, 0);
  cudaGraphDestroy(graph);
  expect_success(made, "cudaGraphInstantiate");
}

void StepRecorder::step(uint64_t key, const std::function<void()>& body) {
  if (recorded_.size() >= kMostGraphs && !recorded_.contains(key)) forget_all();
  const auto [at, is_new] = recorded_.try_emplace(key);
  Recorded& recorded = at->second;
  if (is_new) return body();  // buffers grow and algorithms are chosen outside of a recording
  try {
    update(recorded, body);
  } catch (const NoRoomInStep&) {
    uploads_.grow();
    return body();
  }
  gpu_.use();
  uploads_.flush();
  expect_success(cudaGraphLaunch(recorded.graph, gpu_.stream()), "cudaGraphLaunch");
}

}  // namespace lockstep::kernels::cuda
