#pragma once
// Kernels of a device for tests that hold everything in the host's memory: each call copies what its views
// point to onto the device, guards on both sides, runs the op there, checks the guards and copies all back.
// Views that overlap on the host overlap on the device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels::test {

class HostViews {
 public:
  explicit HostViews(Kernels& device) : device_(device) {}

  // Runs op(args) with every view of `views` moved to the device and back.
  template <class Op>
  void run(std::vector<TensorView*> views, Op&& op) {
    const std::vector<TensorView> hosts = moved_copies(views);
    collect(hosts);
    upload();
    for (size_t at = 0; at < views.size(); ++at) *views[at] = on_device(hosts[at]);
    op(device_);
    download();
    for (size_t at = 0; at < views.size(); ++at) *views[at] = hosts[at];
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kGuardByte = 0xa5;

  // Bytes of the host that one or more views cover, and where they are on the device.
  struct Region {
    std::byte *begin = nullptr, *end = nullptr;
    Buffer device;
    std::byte* at = nullptr;
    size_t bytes() const { return static_cast<size_t>(end - begin); }
  };

  static std::vector<TensorView> moved_copies(const std::vector<TensorView*>& views) {
    std::vector<TensorView> hosts;
    for (const TensorView* view : views) hosts.push_back(*view);
    return hosts;
  }

  static size_t extent_bytes(const TensorView& view) {
    if (view.data == nullptr || view.num_elements() == 0) return 0;
    int64_t last = 0;
    for (size_t dim = 0; dim < view.num_dims; ++dim) last += (view.shape[dim] - 1) * view.stride[dim];
    return static_cast<size_t>(last + 1) * size_of(view.dtype);
  }

  void collect(const std::vector<TensorView>& hosts) {
    std::vector<std::pair<std::byte*, std::byte*>> spans;
    for (const TensorView& host : hosts)
      if (const size_t bytes = extent_bytes(host); bytes > 0) {
        auto* begin = static_cast<std::byte*>(host.data);
        spans.emplace_back(begin, begin + bytes);
      }
    std::sort(spans.begin(), spans.end());
    regions_.clear();
    for (const auto& [begin, end] : spans) {
      if (!regions_.empty() && begin < regions_.back().end) {
        regions_.back().end = std::max(regions_.back().end, end);
      } else {
        regions_.push_back({.begin = begin, .end = end, .device = Buffer(device_.memory())});
      }
    }
  }

  void upload() {
    for (Region& region : regions_) {
      std::vector<uint8_t> image(region.bytes() + 2 * kGuard, kGuardByte);
      std::memcpy(image.data() + kGuard, region.begin, region.bytes());
      region.at =
          static_cast<std::byte*>(region.device.view(DType::kU8, {static_cast<int64_t>(image.size())}).data);
      device_.memory().upload(region.at, image.data(), image.size());
    }
  }

  void download() {
    for (Region& region : regions_) {
      std::vector<uint8_t> image(region.bytes() + 2 * kGuard);
      device_.memory().download(image.data(), region.at, image.size());
      std::memcpy(region.begin, image.data() + kGuard, region.bytes());
      for (size_t at = 0; at < kGuard; ++at) {
        ASSERT_EQ(image[at], kGuardByte) << "written " << kGuard - at << " bytes before a view";
        ASSERT_EQ(image[kGuard + region.bytes() + at], kGuardByte)
            << "written " << at << " bytes behind a view";
      }
    }
  }

  TensorView on_device(const TensorView& host) const {
    TensorView view = host;
    if (extent_bytes(host) == 0) return view;
    const auto* data = static_cast<const std::byte*>(host.data);
    for (const Region& region : regions_)
      if (data >= region.begin && data < region.end) view.data = region.at + kGuard + (data - region.begin);
    return view;
  }

  Kernels& device_;
  std::vector<Region> regions_;
};

}  // namespace lockstep::kernels::test
