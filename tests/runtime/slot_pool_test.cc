#include "lockstep/runtime/kv_cache/slot_pool.h"

#include <gtest/gtest.h>

#include "lockstep/base/check.h"
#include "lockstep/runtime/kv_cache/cache_memory.h"

namespace lockstep::runtime {
namespace {

TEST(SlotPool, ASlotHasOneOwner) {
  SlotPool pool(3);
  EXPECT_EQ(pool.take(7), 0);
  EXPECT_EQ(pool.take(8), 1);
  EXPECT_EQ(pool.owner_of(0), 7U);
  EXPECT_EQ(pool.owner_of(2), 0U);
  pool.release(0, 7);
  EXPECT_EQ(pool.num_used(), 1);
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.take(9), 0);
}

TEST(SlotPool, WhatCannotBeIsABug) {
  SlotPool pool(1), none(0);
  EXPECT_THROW(none.take(1), Fatal);
  EXPECT_THROW(pool.take(0), Fatal);
  EXPECT_THROW(pool.release(0, 0), Fatal);  // free
  EXPECT_EQ(pool.take(5), 0);
  EXPECT_THROW(pool.take(6), Fatal);
  EXPECT_THROW(pool.release(0, 6), Fatal);
  EXPECT_THROW(pool.release(1, 5), Fatal);
  EXPECT_THROW(pool.release(-1, 5), Fatal);
  EXPECT_EQ(pool.num_used(), 1);
}

const std::vector<models::CacheNeed> kNeeds = {{.layer = 0, .what = "recurrent", .values_per_sequence = 6},
                                               {.layer = 1, .what = "keys", .values_per_token = 4},
                                               {.layer = 2, .what = "keys"}};

TEST(CacheMemory, HasRowsForTokensAndForSlots) {
  const auto cache = CacheMemory::allocate(kNeeds, {.tokens = 32, .slots = 3, .token_dtype = DType::kBF16});
  ASSERT_TRUE(cache.ok()) << cache.error().message;
  const auto views = cache->views();
  ASSERT_EQ(views.size(), 3U);
  EXPECT_EQ(views[0].dtype, DType::kF32);  // a state is not rounded
  EXPECT_EQ(views[0].rows(), 3);
  EXPECT_EQ(views[0].cols(), 6);
  EXPECT_EQ(views[1].dtype, DType::kBF16);
  EXPECT_EQ(views[1].rows(), 32);
  EXPECT_EQ(views[1].cols(), 4);
  EXPECT_EQ(views[2].cols(), 0);
  for (int64_t i = 0; i < views[0].num_elements(); ++i) EXPECT_EQ(views[0].as<float>()[i], 0);
}

TEST(CacheMemory, BytesOfATokenAndOfASequence) {
  EXPECT_EQ(cache_bytes(kNeeds, DType::kBF16).per_token, 8);
  EXPECT_EQ(cache_bytes(kNeeds, DType::kF32).per_token, 16);
  EXPECT_EQ(cache_bytes(kNeeds, DType::kBF16).per_sequence, 24);
}

}  // namespace
}  // namespace lockstep::runtime
