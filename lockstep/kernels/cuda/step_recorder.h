#pragma once
// A step as a CUDA graph. The ops of a step run on the host every time; what they would launch is recorded
// the second time that a step has a key, and from then on they only prepare their host arrays and note what
// their launches would be given. Where that is what was recorded, all of it is launched at once; where not,
// it is recorded anew. So a graph cannot be replayed for shapes or pointers that it was not made of. A step
// whose host arrays are too many for the ring of uploads is launched kernel by kernel, once; then it has
// grown.
#include <functional>
#include <map>

#include "lockstep/base/hash.h"
#include "lockstep/kernels/cuda/uploads.h"

namespace lockstep::kernels::cuda {

class StepRecorder {
 public:
  StepRecorder(const Gpu& gpu, Uploads& uploads) : gpu_(gpu), uploads_(uploads) {}
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  void step(uint64_t key, const std::function<void()>& body);

  // The ops note everything that their launches depend on, then launch unless they are to skip it.
  bool skips_launches() const { return mode_ == Mode::kCompare; }
  template <class... Parts>
  void note(const Parts&... parts) {
    if (mode_ != Mode::kPlain) (add(parts), ...);
  }

 private:
  enum class Mode : uint8_t { kPlain, kRecord, kCompare };
  struct Recorded {
    cudaGraphExec_t graph = nullptr;
    uint64_t noted = 0;
  };
  uint64_t run(Mode mode, const std::function<void()>& body);
  void update(Recorded& recorded, const std::function<void()>& body);
  cudaGraph_t record(const std::function<void()>& body, uint64_t& noted);
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
  Mode mode_ = Mode::kPlain;
  uint64_t noted_ = 0;
  std::map<uint64_t, Recorded> recorded_;  // by key
};

}  // namespace lockstep::kernels::cuda
