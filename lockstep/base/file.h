#pragma once
// Whole small files (configs, tokenizers, templates). Weights are mapped by tensors/, never read through
// here.
#include <filesystem>
#include <string>

#include "lockstep/base/check.h"

namespace lockstep {

// Errors name the path and what the system said; a file above max_bytes is refused before it is read.
Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes = size_t{256} << 20);

}  // namespace lockstep
