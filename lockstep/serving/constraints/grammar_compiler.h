#pragma once
// What a client wants an output to be, as a constraint on its tokens: the front door of this folder. The only
// place that knows the grammar library. A build without it refuses every form, and says so.
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/runtime/engine.h"
#include "lockstep/serving/tokenizer/tokenizer.h"

namespace lockstep::serving::constraints {

struct OutputForm {
  enum class Kind : unsigned char {
    kJsonSchema,  // text is a schema that enforceable_schema() made
    kRegex,       // the whole output matches
    kGrammar,     // in EBNF, with a rule called root
    kStructure,   // in the library's own JSON: calls of tools among text
  };
  Kind kind = Kind::kJsonSchema;
  std::string text;
  std::string field;  // how errors name it
};

// A text of an output behind which the form begins.
struct Opening {
  std::string marker;
  enum class End : unsigned char {
    kAllowed,
    kBarred
  } end = End::kBarred;  // of the output, before the marker
};

// A form that is ready for any number of outputs.
class CompiledForm {
 public:
  struct Impl;
  explicit CompiledForm(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  // Behind all of the openings, one after another; none: at once. Before that anything may come.
  std::shared_ptr<runtime::TokenConstraint> start(std::vector<Opening> openings) const;

 private:
  std::shared_ptr<const Impl> impl_;
};

// Safe to use from any thread.
class GrammarCompiler {
 public:
  // The tokenizer must outlive this. `markers`: special tokens that a form may hold; other special tokens are
  // never allowed in a constrained output.
  GrammarCompiler(const Tokenizer& tokenizer, const runtime::ModelInfo& model, std::vector<int32_t> markers);
  ~GrammarCompiler();

  static bool is_available();

  // What was compiled is remembered. Errors are the client's: the form means nothing or is too large.
  Result<CompiledForm> compile(const OutputForm& form) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::serving::constraints
