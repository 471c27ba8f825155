#pragma once
// A configuration and its plans as one page of HTML that needs nothing else, for people who do not know the
// code; and the words that it shares with the JSON.
#include <string>

#include "lockstep/planning/configuration.h"

namespace lockstep::planning {

struct PageParts {
  std::string title;
  const Configuration& configuration;
  const Plans& plans;
  const ModelShape& model;
  const Machine& machine;
};
std::string plan_page(const PageParts& parts);

// What SGLang calls rows in this layout: "SCATTERED", "TP_ATTN_FULL", "FULL"; empty where it has no word.
std::string_view prior_art_name(const Layout& layout, const RankGrid& grid);

// As to_json(plan, grid), with bytes, predicted microseconds, what binds, and the prior art's names.
Json explained_json(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load);
Json memory_json(const ModelShape& model, const RankGrid& grid, const StageOptions& stages,
                 const Capacity& capacity);
// The plans of one chain, each under its regime's name: what it was made for, edges and costs, and the bytes
// of layers beside the prior art's. `exchange` is the configuration's.
Json plans_json(const Plans& plans, ExchangeBackend exchange, const ModelShape& model,
                const Machine& machine);

}  // namespace lockstep::planning
