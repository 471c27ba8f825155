#pragma once
// Steps that more than one part of tokenizer.json may name: replacing a string, and the marks for spaces of
// SentencePiece.
#include <string>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::tokenizing {

struct StringReplace {
  std::string from, to;
};

// {"pattern": {"String": ...}, "content": ...}
Result<StringReplace> read_string_replace(const Json& value, const std::string& path);

// When a mark is put before a piece that does not start with one: always, only at the start of the text,
// never.
enum class MetaspacePrepend : unsigned char { kAlways, kFirst, kNever };

struct MetaspaceOptions {
  std::string replacement;  // one character
  MetaspacePrepend prepend = MetaspacePrepend::kAlways;
  bool splits = true;  // each mark begins a piece
};

Result<MetaspaceOptions> read_metaspace(const Json& value, const std::string& path);

std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace lockstep::serving::tokenizing
