#pragma once
// What SGLang's decision tables put on the wire for one layer of the same configuration, by its own way of
// choosing (published sources up to September 2026: scatter modes of the attention and the MLP, without
// context parallelism), beside what a plan does. Dispatch and combine are left out: both send the same rows.
#include <optional>
#include <string>
#include <vector>

#include "lockstep/planning/configuration.h"

namespace lockstep::planning {

struct PriorArtLayer {
  int ranks = 1, replicas = 1;  // W, D
  int experts_parallel = 1;     // E
  enum class Mlp : uint8_t { kScattered, kFull } mlp = Mlp::kFull;
  // With counts padded to the longest (decode) its gather over replicas is a reduce-scatter over attention-TP
  // and an all-gather over all ranks; with counts as they are (prefill) an all-reduce of a buffer of all
  // rows, and so is the way back unless experts, replicas and ranks are equally many.
  enum class Counts : uint8_t { kPadded, kAsTheyAre } counts = Counts::kPadded;
};

// None where it has no such mode: context parallelism's tables are others, copies of experts and other widths
// of dense layers it does not have, and where rows are exchanged it makes --ep-size all ranks.
std::optional<PriorArtLayer> prior_art_layer(const GridShape& grid, ExchangeBackend exchange,
                                             ModelShape::Ffn ffn, Regime regime);
// Out of one rank; `rows` of every replica, `row_bytes` each.
double prior_art_bytes(const PriorArtLayer& layer, double rows, double row_bytes);
// The collectives of the same, which each cost their latency.
int prior_art_collectives(const PriorArtLayer& layer);

// Layers that follow each other and spend the same.
struct SpentByLayers {
  int first = 0, last = 0;
  ModelShape::Ffn ffn = ModelShape::Ffn::kDense;
  double bytes = 0, us = 0;  // of what communicates between a layer's attention and the next layer's
  int collectives = 0;
  double prior_bytes = 0, prior_us = 0;  // by the same constants
  int prior_collectives = 0;
};
// Of every layer but the last, whose rows go to the head. Empty where there is nothing to compare with: no
// such mode, one rank, or ranks of several hosts.
std::vector<SpentByLayers> spent_beside_prior_art(const Plans& plans, ExchangeBackend exchange,
                                                  const ModelShape& model, const Machine& machine,
                                                  Regime regime);
// Why a layer sends more than those tables would: what its bytes buy. Empty where it does not.
std::string why_more_bytes(const SpentByLayers& spent);

std::string to_text(const std::vector<SpentByLayers>& spent);
Json to_json(const std::vector<SpentByLayers>& spent);

}  // namespace lockstep::planning
