#pragma once
// Who reads what an op gives. Part of kernels.h.
#include <cstdint>

namespace lockstep::kernels {

// kNextRounds: the op that follows at once, alone, and it rounds what it reads: a product whose weights are
// bf16, attention whose cache is. Then a device may leave the numbers rounded in its scratch, and the view as
// it was.
enum class Readers : uint8_t { kAny, kNextRounds };

}  // namespace lockstep::kernels
