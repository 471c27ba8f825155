#include "lockstep/kernels/cuda/step_recorder.h"

#include <utility>

namespace lockstep::kernels::cuda {

StepRecorder::~StepRecorder() { forget_all(); }

void StepRecorder::forget(Recorded& recorded, size_t first_segment) {
  for (size_t at = first_segment; at < recorded.segments.size(); ++at)
    if (recorded.segments[at].graph != nullptr) cudaGraphExecDestroy(recorded.segments[at].graph);
  recorded.segments.resize(std::min(first_segment, recorded.segments.size()));
}

void StepRecorder::forget_all() {
  for (auto& [key, recorded] : recorded_) forget(recorded, 0);
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

void StepRecorder::begin_capture() {
  expect_success(cudaStreamBeginCapture(gpu_.stream(), cudaStreamCaptureModeRelaxed),
                 "cudaStreamBeginCapture");
  captures_ = true;
}

void StepRecorder::end_capture() {
  cudaGraph_t graph = nullptr;
  captures_ = false;
  expect_success(cudaStreamEndCapture(gpu_.stream(), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t made = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&made, graph, 0);
  cudaGraphDestroy(graph);
  expect_success(error, "cudaGraphInstantiate");
  now_->segments.push_back({.graph = made, .noted = noted_});
}

void StepRecorder::launch(const Segment& segment) {
  gpu_.use();
  uploads_.flush();
  expect_success(cudaGraphLaunch(segment.graph, gpu_.stream()), "cudaGraphLaunch");
  ++num_launched_;
}

// The host's arrays of this segment are ready: where its launches are those that were recorded, the GPU gets
// them.
void StepRecorder::compare_segment() {
  if (differs_) return;
  differs_ = segment_ >= now_->segments.size() || now_->segments[segment_].noted != noted_;
  if (!differs_) launch(now_->segments[segment_]);
}

void StepRecorder::end_segment() {
  note_scratch_();
  if (mode_ == Mode::kCompare) {
    compare_segment();
  } else if (captures_) {
    end_capture();
  }
  ++segment_;
  noted_ = 0;
  if (mode_ == Mode::kCompare || segment_ < num_launched_) return;
  skips_ = false;
  if (mode_ == Mode::kRecord) begin_capture();
}

void StepRecorder::run(Mode mode, const std::function<void()>& body) {
  struct Plain {
    StepRecorder& of;
    ~Plain() {
      if (std::exchange(of.captures_, false)) {
        cudaGraph_t graph = nullptr;
        cudaStreamEndCapture(of.gpu_.stream(), &graph);
        if (graph != nullptr) cudaGraphDestroy(graph);
      }
      of.mode_ = Mode::kPlain;
      of.skips_ = false;
      of.uploads_.end_step();
    }
  };
  if (mode != Mode::kLaunchRest) uploads_.begin_step();
  mode_ = mode;
  noted_ = 0;
  num_ops_ = 0;
  segment_ = 0;
  const Plain plain{*this};
  skips_ = mode == Mode::kCompare || num_launched_ > 0;
  if (mode == Mode::kRecord && !skips_) begin_capture();
  body();
  note_scratch_();
  if (captures_) end_capture();
  if (mode == Mode::kCompare) compare_segment();
}

// Comparing comes first also where there is nothing to compare with: what this step needs beyond the one that
// ran before it grows then, not while it is recorded. What has been launched by then is as it would have been
// recorded; the rest is recorded and launched behind it.
void StepRecorder::step(uint64_t key, const std::function<void()>& body) {
  if (recorded_.size() >= kMostGraphs && !recorded_.contains(key)) forget_all();
  now_ = &recorded_[key];
  // Buffers grow and algorithms are chosen outside of a recording.
  if (!std::exchange(now_->has_run, true)) return body();
  num_launched_ = 0;
  differs_ = false;
  try {
    run(Mode::kCompare, body);
    forget(*now_, num_launched_);
    if (!differs_) return;
    run(Mode::kRecord, body);
  } catch (const NoRoomInStep&) {
    uploads_.grow();
    return run(Mode::kLaunchRest, body);
  }
  while (num_launched_ < now_->segments.size()) launch(now_->segments[num_launched_]);
}

}  // namespace lockstep::kernels::cuda
