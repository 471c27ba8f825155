// What a step must read and do, against a count by hand.
#include "lockstep/runtime/step_floor.h"

#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

using Ffn = planning::ModelShape::Ffn;

// One layer of attention and experts, one dense: 100 attention weights each, hidden 10, 4 experts of width 5
// of which a row takes 2, a dense width of 20, a vocabulary of 30.
planning::ModelShape small_shape() {
  planning::ModelShape shape;
  shape.hidden = 10;
  shape.vocab = 30;
  shape.layers = {Ffn::kExperts, Ffn::kDense};
  shape.dense_inter = 20;
  shape.num_experts = 4;
  shape.top_k = 2;
  shape.expert_inter = 5;
  shape.attention_params = 100;
  shape.bytes_per_weight = 1;
  shape.cache_values_per_token = 8;
  shape.cache_bytes_per_value = 2;
  return shape;
}

TEST(StepFloor, OneRowReadsItsOwnExperts) {
  // 2·100 attention, 600 dense, 2·150 of experts a byte each; router 40 and head 300 two bytes each; 7
  // tokens.
  const StepNeeds needs = decode_needs(small_shape(), 1, 7);
  EXPECT_DOUBLE_EQ(needs.bytes, 200 + 600 + 300 + 80 + 600 + 7 * 8 * 2);
  EXPECT_DOUBLE_EQ(needs.flops, 2 * (200 + 600 + 300 + 40 + 300));
}

TEST(StepFloor, RowsShareExperts) {
  // A row misses a given expert with 1/2: of three rows 7/8 of the 4 experts are met.
  const StepNeeds needs = decode_needs(small_shape(), 3, 0);
  EXPECT_DOUBLE_EQ(needs.bytes, 200 + 600 + 3.5 * 150 + 80 + 600);
  EXPECT_DOUBLE_EQ(needs.flops, 3 * 2 * (200 + 600 + 300 + 40 + 300));
}

TEST(StepFloor, APromptWantsTheLogitsOfItsLastRow) {
  EXPECT_DOUBLE_EQ(prompt_needs(small_shape(), 5).flops, 2 * (5 * (200 + 600 + 300 + 40) + 300));
}

TEST(StepFloor, TheSlowerOfReadingAndMultiplyingIsTheFloor) {
  const MachineRoofs roofs{.read_bytes_per_second = 10, .flops_per_second = 100};
  EXPECT_DOUBLE_EQ(floor_seconds({.bytes = 50, .flops = 100}, roofs), 5);
  EXPECT_DOUBLE_EQ(floor_seconds({.bytes = 5, .flops = 100}, roofs), 1);
}

}  // namespace
}  // namespace lockstep::runtime
