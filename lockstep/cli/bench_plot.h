#pragma once
// A measurement of an endpoint as a picture: one SVG without scripts or anything from elsewhere; a file that
// ends with .html gets it in a page with the table.
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/cli/bench_record.h"

namespace lockstep::cli {

std::string plot_svg(const Json& summary, const std::vector<RequestRecord>& records);
Status write_plot(const std::string& path, const Json& summary, const std::vector<RequestRecord>& records);

}  // namespace lockstep::cli
