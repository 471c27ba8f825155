#pragma once
// Makes of a client's JSON schema one that the grammar library enforces to the letter, or refuses it: a
// keyword that would not be enforced is named, never passed over. The schema that comes out may allow less
// (an object with properties gets no others unless it must), never more.
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving::constraints {

inline constexpr size_t kMaxSchemaBytes = size_t{64} << 10;
inline constexpr size_t kMaxSchemasBytes = size_t{1} << 20;  // of all tools of a request together
// Between two tokens of JSON: enough to indent, and a bound for models that would not stop.
inline constexpr int kMaxWhitespace = 12;

// `field` is how errors name the schema: "response_format.json_schema.schema".
Result<Json> enforceable_schema(const Json& schema, const std::string& field);

// The schema with what cannot be enforced left out, and of the rest the one that enforceable_schema() makes:
// for tools that are not strict. Any value where nothing is left.
Json loosened_schema(const Json& schema);

}  // namespace lockstep::serving::constraints
