#pragma once
// What every CPU implementation demands of its arguments before it touches memory: shapes that agree, dtypes
// that it can read, rows that lie in their tables. A breach is a bug of the caller and fails a check that
// prints both numbers.
#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels::cpu {

void check(const EmbedArgs& args);
void check(const RmsNormArgs& args);
void check(const AddArgs& args);
void check(const LinearArgs& args);
void check(const MatmulArgs& args);
void check(const SiluMulArgs& args);
void check(const SigmoidMulArgs& args);
void check(const RopeArgs& args);
void check(const RouteArgs& args);
void check(const GroupedFfnArgs& args);
void check(const CacheWriteArgs& args);
void check(const CacheReadArgs& args);
void check(const MlaAbsorbedArgs& args);
void check(const MlaExpandedArgs& args);
void check(const GqaArgs& args);
void check(const CausalConvArgs& args);
void check(const L2NormArgs& args);
void check(const DeltaGatesArgs& args);
void check(const GatedDeltaArgs& args);
void check(const CopyRowsArgs& args);
void check(const SumRowsArgs& args);
void check(const SumAddNormArgs& args);
void check(const PlaceSlotsArgs& args);
void check(const PullWeightedArgs& args);
void check(const AttentionRowsArgs& args);
void check(const PullAddArgs& args);
void check(const PullAddNormArgs& args);
void check(const AttendArgs& args);
void check(const LinearRouteArgs& args);
void check(const RoutedFfnArgs& args);
void check(const LargestArgs& args);

}  // namespace lockstep::kernels::cpu
