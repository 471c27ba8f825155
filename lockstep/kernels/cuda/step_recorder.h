#pragma once
// A step as CUDA graphs. The ops of a step run on the host every time; what they would launch is recorded the
// second time that a step has a key, and from then on they only prepare their host arrays and note what their
// launches would be given. Where that is what was recorded, all of it is launched at once; where not, it is
// recorded anew. So a graph cannot be replayed for shapes or pointers that it was not made of. A step is
// recorded in segments, each of which is launched as soon as the host has come to its end: the GPU computes
// the first while the host prepares the second. A step whose host arrays are too many for the ring of uploads
// is launched kernel by kernel, once; then it has grown.
#include <functional>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/kernels/cuda/uploads.h"

namespace lockstep::kernels::cuda {

class StepRecorder {
 public:
  // `note_scratch` notes what launches depend on beside what their ops note: it is called at the end of every
  // segment.
  StepRecorder(const Gpu& gpu, Uploads& uploads, std::function<void()> note_scratch)
      : gpu_(gpu), uploads_(uploads), note_scratch_(std::move(note_scratch)) {}
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  void step(uint64_t key, const std::function<void()>& body);

  // The ops note everything that their launches depend on, then launch unless they are to skip it.
  bool skips_launches() const { return skips_; }
  template <class... Parts>
  void note(const Parts&... parts) {
    if (mode_ != Mode::kPlain) (add(parts), ...);
  }
  // Before an op notes anything: a segment may end here.
  void next_op() {
    if (mode_ != Mode::kPlain && ++num_ops_ == end_of_segment(segment_)) end_segment();
  }

 private:
  enum class Mode : uint8_t { kPlain, kRecord, kCompare, kLaunchRest };  // the rest: behind what is launched
  struct Segment {
    cudaGraphExec_t graph = nullptr;
    uint64_t noted = 0;
  };
  struct Recorded {
    std::vector<Segment> segments;
    bool has_run = false;
  };
  // Short ones first, so that the GPU soon has something to do, then longer ones, which the host outruns.
  static int end_of_segment(size_t segment) {
    constexpr int kEnds[] = {20, 60, 160, 360};
    constexpr size_t kFew = std::size(kEnds);
    return segment < kFew ? kEnds[segment] : kEnds[kFew - 1] + 240 * static_cast<int>(segment - kFew + 1);
  }
  void run(Mode mode, const std::function<void()>& body);
  void end_segment();
  void compare_segment();
  void begin_capture();
  void end_capture();
  void launch(const Segment& segment);
  static void forget(Recorded& recorded, size_t first_segment);
  void forget_all();

  void add(uint64_t number) { noted_ = mix(noted_ ^ number); }
  void add(int64_t number) { add(static_cast<uint64_t>(number)); }
  void add(int number) { add(static_cast<uint64_t>(number)); }
  void add(bool flag) { add(uint64_t{flag}); }
  void add(float number) { add(uint64_t{std::bit_cast<uint32_t>(number)}); }
  void add(const void* address) { add(static_cast<uint64_t>(reinterpret_cast<uintptr_t>(address))); }
  void add(const TensorView& view);
  static uint64_t mix(uint64_t number) {
    number *= 0x9e3779b97f4a7c15;
    return number ^ (number >> 29);
  }

  static constexpr size_t kMostGraphs = 128;
  const Gpu& gpu_;
  Uploads& uploads_;
  const std::function<void()> note_scratch_;
  std::map<uint64_t, Recorded> recorded_;  // by key

  // Of the step that runs.
  Mode mode_ = Mode::kPlain;
  bool skips_ = false, captures_ = false;
  Recorded* now_ = nullptr;
  uint64_t noted_ = 0;
  int num_ops_ = 0;
  size_t segment_ = 0, num_launched_ = 0;  // launched: the first so many segments
  bool differs_ = false;                   // what comes after them is not what was recorded
};

}  // namespace lockstep::kernels::cuda
