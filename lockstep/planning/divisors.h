#pragma once
// The widths that a number of ranks can be cut into. For planning alone.
#include <vector>

namespace lockstep::planning {

// Every divisor of `number`, ascending; none of a number below 1.
inline std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int d = 1; d <= number; ++d)
    if (number % d == 0) found.push_back(d);
  return found;
}

}  // namespace lockstep::planning
