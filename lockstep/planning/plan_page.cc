#include "lockstep/planning/plan_page.h"

#include <algorithm>

#include "lockstep/planning/memory.h"
#include "lockstep/planning/prior_art.h"

namespace lockstep::planning {
namespace {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  return safe;
}

std::string row_of(const std::vector<std::string>& cells, std::string_view tag = "td") {
  std::string row = "<tr>";
  for (const std::string& cell : cells) row += fmt::format("<{0}>{1}</{0}>", tag, cell);
  return row + "</tr>\n";
}

std::string table_of(const std::vector<std::string>& heads, const std::string& rows) {
  return "<table><thead>" + row_of(heads, "th") + "</thead><tbody>\n" + rows + "</tbody></table>\n";
}

std::string layout_cell(const Layout& layout, const RankGrid& grid) {
  const std::string_view name = prior_art_name(layout, grid);
  return escaped(to_text(layout, grid)) + (name.empty() ? "" : fmt::format(" <i>{}</i>", name));
}

std::string bytes_text(double bytes) {
  for (const auto& [unit, size] : {std::pair("GB", 1e9), std::pair("MB", 1e6), std::pair("kB", 1e3)})
    if (bytes >= size) return fmt::format("{:.2f} {}", bytes / size, unit);
  return fmt::format("{:.0f} B", bytes);
}

std::string settings_table(const Configuration& configuration) {
  std::string rows;
  for (const Setting& setting : configuration.settings) {
    const char* source = setting.source == Setting::Source::kGiven     ? "given"
                         : setting.source == Setting::Source::kDefault ? "default"
                                                                       : "derived";
    rows += row_of({escaped(setting.flag), escaped(setting.value), source, escaped(setting.reason)});
  }
  return table_of({"setting", "value", "source", "reason"}, rows);
}

std::string grid_table(const RankGrid& grid) {
  constexpr int kMostShown = 64;
  std::vector<std::string> heads = {"rank", "replica"};
  for (int axis = grid.num_axes() - 1; axis >= 0; --axis)
    heads.push_back(fmt::format("{} of {}", grid.axes()[static_cast<size_t>(axis)].name,
                                grid.axes()[static_cast<size_t>(axis)].size));
  heads.insert(heads.end(), {"attention-TP with", "experts' TP with", "exchanges with"});
  std::string rows;
  for (int rank = 0; rank < std::min(kMostShown, grid.num_ranks()); ++rank) {
    std::vector<std::string> cells = {std::to_string(rank), std::to_string(grid.replica_of(rank))};
    for (int axis = grid.num_axes() - 1; axis >= 0; --axis)
      cells.push_back(std::to_string(grid.coord(rank, axis)));
    for (const AxisSet over : {grid.attention_heads(), grid.expert_tp(), grid.expert_parallel()}) {
      std::string members;
      for (const int member : grid.group(rank, over))
        if (members.size() < 40) members += (members.empty() ? "" : " ") + std::to_string(member);
      cells.push_back(members);
    }
    rows += row_of(cells);
  }
  std::string note;
  if (grid.num_ranks() > kMostShown)
    note = fmt::format("<p>The first {} of {} ranks.</p>\n", kMostShown, grid.num_ranks());
  return table_of(heads, rows) + note;
}

std::string memory_table(const PageParts& parts) {
  const RankMemory memory =
      memory_of(parts.model, parts.plans.grid, parts.configuration.stages, parts.configuration.capacity);
  std::string rows;
  for (const WeightPlace& weights : memory.weights)
    rows += row_of({escaped(weights.what), escaped(weights.split), bytes_text(weights.bytes)});
  rows += row_of({"all weights", "", bytes_text(memory.weight_bytes)});
  rows += row_of({"cache of a token", "of the rank's replica", bytes_text(memory.cache_bytes_per_token)});
  rows += row_of({"rows between stages", "at most", bytes_text(memory.work_bytes)});
  return table_of({"what", "where", "bytes of one rank"}, rows);
}

std::string plan_table(const Plan& plan, const PageParts& parts, const Load& load) {
  const RankGrid& grid = parts.plans.grid;
  std::string rows;
  Load now = load;
  for (const Edge& edge : plan.edges) {
    rows += fmt::format("<tr class=\"edge\"><td colspan=\"8\">{} &rarr; {}: {} &rarr; {}</td></tr>\n",
                        to_text(edge.from), to_text(edge.to), layout_cell(edge.given, grid),
                        layout_cell(edge.needed, grid));
    for (const Step& step : edge.steps) {
      if (step.kind == StepKind::kSelect) now = after_select(load);
      const Load here = load_on(edge.from.kind, now);
      const Estimate cost = estimate(step, grid, parts.machine, here);
      rows += row_of({std::to_string(step.id), std::string(name_of(step.kind)),
                      std::string(name_of(step.value)), escaped(grid.name_of(step.over)),
                      layout_cell(step.before, grid) + " &rarr; " + layout_cell(step.after, grid),
                      bytes_text(wire_bytes(step, grid, parts.machine, here)), fmt::format("{:.2f}", cost.us),
                      std::string(cost.bound_by)});
    }
  }
  return table_of({"step", "what", "value", "over", "rows", "bytes out", "predicted &micro;s", "bound by"},
                  rows);
}

// Bytes of layers beside the prior art's; empty where there is nothing to compare with.
std::string spent_table(const std::vector<SpentByLayers>& spent) {
  std::string rows;
  for (const SpentByLayers& one : spent)
    rows += row_of(
        {one.first == one.last ? std::to_string(one.first) : fmt::format("{} to {}", one.first, one.last),
         one.ffn == ModelShape::Ffn::kDense ? "dense" : "experts", bytes_text(one.bytes),
         bytes_text(one.prior_bytes), why_more_bytes(one)});
  if (rows.empty()) return rows;
  return table_of({"layers", "FFN", "bytes out of a rank", "by SGLang's tables", "what more bytes buy"},
                  rows);
}

// The plans of one chain, one a regime.
std::string plans_of(const PageParts& parts, const Plans& plans) {
  std::string sections;
  for (const Regime regime : kRegimes) {
    const Load& load = plans.load_of(regime);
    const Plan& plan = plans.of(regime);
    sections += fmt::format(
        "<details{}><summary>{}: made for {} rows a replica, {:.1f} &micro;s of communication, {} "
        "out of a rank</summary>\n",
        regime == Regime::kDecode ? " open" : "", name_of(regime), load.rows_per_replica,
        total_us(plan, plans.grid, parts.machine, load),
        bytes_text(total_wire_bytes(plan, plans.grid, parts.machine, load)));
    sections += plan_table(plan, parts, load);
    if (&plans == &parts.plans)
      sections += spent_table(spent_beside_prior_art(plans, parts.configuration.stages.exchange, parts.model,
                                                     parts.machine, regime));
    sections += "</details>\n";
  }
  return sections;
}

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%;margin:1em 0}td,th{border:1px solid #ccc;padding:3px 8px;"
    "text-align:left;vertical-align:top}th{background:#f2f2f2}tr.edge td{background:#e8eef7;font-weight:600}"
    "i{color:#666}code{background:#f2f2f2}summary{cursor:pointer;font-size:1.2em;margin:1em 0}";

}  // namespace

std::string_view prior_art_name(const Layout& layout, const RankGrid& grid) {
  if (!layout.axes_with(Placement::kColumns, grid).empty()) return "";
  const AxisSet sharded = layout.axes_with(Placement::kShard, grid);
  // Of one rank, and of one replica, several names mean the same; the narrowest is taken.
  if (sharded == (grid.attention_dp() | grid.attention_cp())) return "TP_ATTN_FULL";
  if (sharded == grid.all()) return "SCATTERED";
  if (sharded == grid.attention_cp()) return "FULL";
  return sharded.empty() ? "MOE_FULL" : "";
}

Json explained_json(const Plan& plan, const RankGrid& grid, const Machine& machine, const Load& load) {
  Json edges = to_json(plan, grid);
  Load now = load;
  for (size_t e = 0; e < plan.edges.size(); ++e) {
    double us = 0;
    for (size_t s = 0; s < plan.edges[e].steps.size(); ++s) {
      const Step& step = plan.edges[e].steps[s];
      if (step.kind == StepKind::kSelect) now = after_select(load);
      const Load here = load_on(plan.edges[e].from.kind, now);
      const Estimate cost = estimate(step, grid, machine, here);
      us += cost.us;
      Json& json = edges[e]["steps"][s];
      json["bytes"] = wire_bytes(step, grid, machine, here);
      json["us"] = cost.us;
      json["bound_by"] = cost.bound_by;
    }
    edges[e]["us"] = us;
    edges[e]["given_prior_art"] = prior_art_name(plan.edges[e].given, grid);
    edges[e]["needed_prior_art"] = prior_art_name(plan.edges[e].needed, grid);
  }
  return edges;
}

Json plans_json(const Plans& plans, ExchangeBackend exchange, const ModelShape& model,
                const Machine& machine) {
  Json json = Json::object();
  for (const Regime regime : kRegimes) {
    const Load& load = plans.load_of(regime);
    json[std::string(name_of(regime))] = {
        {"rows_per_replica", load.rows_per_replica},
        {"us", total_us(plans.of(regime), plans.grid, machine, load)},
        {"edges", explained_json(plans.of(regime), plans.grid, machine, load)},
        {"layers", to_json(spent_beside_prior_art(plans, exchange, model, machine, regime))}};
  }
  return json;
}

Json memory_json(const ModelShape& model, const RankGrid& grid, const StageOptions& stages,
                 const Capacity& capacity) {
  const RankMemory memory = memory_of(model, grid, stages, capacity);
  Json weights = Json::array();
  for (const WeightPlace& one : memory.weights)
    weights.push_back({{"what", one.what},
                       {"where", one.split},
                       {"parts", one.parts},
                       {"copies", one.copies},
                       {"bytes", one.bytes}});
  return {{"weights", std::move(weights)},
          {"weight_bytes", memory.weight_bytes},
          {"cache_bytes_per_token", memory.cache_bytes_per_token},
          {"work_bytes", memory.work_bytes}};
}

std::string plan_page(const PageParts& parts) {
  const RankGrid& grid = parts.plans.grid;
  std::string page = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{1}</style>"
      "</head><body>\n<h1>{0}</h1>\n<p>{2} ranks in {3} attention replicas, planned for {4}; hash "
      "<code>{5:016x}</code>. No weight was read. Times are predictions of a cost model.</p>\n",
      escaped(parts.title), kStyle, grid.num_ranks(), grid.num_replicas(), escaped(parts.machine.name),
      hash_of(parts.plans));
  page += "<h2>Settings</h2>\n" + settings_table(parts.configuration);
  page +=
      "<h2>The grid</h2>\n<p>Each axis is a way in which ranks differ; a group is the ranks that differ "
      "along "
      "some axes only.</p>\n" +
      grid_table(grid);
  page += "<h2>Where weights live</h2>\n" + memory_table(parts);
  page +=
      "<h2>What ranks do between stages</h2>\n<p><b>Shard</b>: each rank has other rows. <b>Partial</b>: "
      "each has an addend, the sum is owed. <b>Columns</b>: each has some features. Axes that are not named: "
      "all have the same rows. Beside some layouts stands, in italics, what SGLang calls them.</p>\n";
  page += plans_of(parts, parts.plans);
  if (parts.plans.draft)
    page += fmt::format(
                "<h2>The same of drafts</h2>\n<p>The checkpoint's MTP module drafts up to {} tokens a "
                "request and "
                "step, on the same grid, with plans of its own; {} rows of a request verify them.</p>\n",
                parts.configuration.num_drafts, parts.configuration.num_drafts + 1) +
            plans_of(parts, *parts.plans.draft);
  return page + "</body></html>\n";
}

}  // namespace lockstep::planning
