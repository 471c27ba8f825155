#pragma once
// Flags whose values are words of a short list. For the files that declare flags.
#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cli/commands.h"

namespace lockstep::cli {

// A flag with a few words for values. CLI11's own transformer prints the numbers of the enum into the help.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;
template <class Value, class T>
CLI::Option* add_choice(CLI::App& app, const char* flag, Value& value, const char* what, Choices<T> choices) {
  std::string words;
  for (const auto& [word, unused] : choices) words += (words.empty() ? "" : "|") + word;
  return app
      .add_option_function<std::string>(
          flag,
          [flag, choices = std::move(choices), words, &value](const std::string& given) {
            for (const auto& [word, of_word] : choices) {
              if (word != given) continue;
              value = of_word;
              return;
            }
            throw CLI::ValidationError(flag, fmt::format("\"{}\" is not one of {}", given, words));
          },
          what)
      ->type_name(words);
}

inline void add_json(CLI::App& app, OutputFormat& format) {
  app.add_flag_function(
      "--json", [&format](int64_t) { format = OutputFormat::kJson; }, "Print JSON on standard output");
}

}  // namespace lockstep::cli
