// The header of a safetensors file, well-formed and in every way that it can lie.
#include "lockstep/tensors/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tensors/safetensors_file.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& file) {
  const Result<SafetensorsHeader> header = parse_safetensors_header(file, file.size());
  return header.ok() ? "(accepted)" : header.error().message;
}

std::string refusal_of_entry(const std::string& entry, size_t data_bytes) {
  return refusal(safetensors("{\"w\":" + entry + "}", std::string(data_bytes, 'x')));
}

TEST(SafetensorsHeader, TensorsInTheOrderOfTheirData) {
  const std::string file = safetensors(R"({"b":{"dtype":"F32","shape":[2,1],"data_offsets":[6,14]},)"
                                       R"("__metadata__":{"format":"pt","note":"\u00e9"},)"
                                       R"("a":{"shape":[3],"data_offsets":[0,6],"dtype":"BF16"}}   )",
                                       std::string(14, 'x'));
  const Result<SafetensorsHeader> header = parse_safetensors_header(file, file.size());
  ASSERT_TRUE(header.ok()) << header.error().message;
  ASSERT_EQ(header->entries.size(), 2u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[0].dtype, DType::kBF16);
  EXPECT_EQ(header->entries[0].shape, std::vector<int64_t>{3});
  EXPECT_EQ(header->entries[1].name, "b");
  EXPECT_EQ(header->entries[1].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(header->entries[1].begin, 6u);
  EXPECT_EQ(header->entries[1].end, 14u);
  EXPECT_EQ(header->metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"note", "\u00e9"}}));
  EXPECT_EQ(header->data_offset, file.size() - 14);
}

TEST(SafetensorsHeader, OnlyTheHeadIsNeeded) {
  const std::string file = safetensors(R"({"w":{"dtype":"U8","shape":[1000],"data_offsets":[0,1000]}})");
  EXPECT_TRUE(parse_safetensors_header(file, file.size() + 1000).ok());
  EXPECT_FALSE(parse_safetensors_header(file, file.size() + 999).ok());
}

TEST(SafetensorsHeader, EveryDType) {
  const auto accepts = [](const std::string& dtype, size_t bytes) {
    return refusal_of_entry(
               R"({"dtype":")" + dtype + R"(","shape":[2],"data_offsets":[0,)" + std::to_string(bytes) + "]}",
               bytes) == "(accepted)";
  };
  EXPECT_TRUE(accepts("F32", 8));
  EXPECT_TRUE(accepts("BF16", 4));
  EXPECT_TRUE(accepts("F16", 4));
  EXPECT_TRUE(accepts("F8_E4M3", 2));
  EXPECT_TRUE(accepts("I32", 8));
  EXPECT_TRUE(accepts("I64", 16));
  EXPECT_TRUE(accepts("U8", 2));
}

TEST(SafetensorsHeader, EmptyTensorsScalarsAndNoTensorsAtAll) {
  EXPECT_EQ(refusal(safetensors("{}")), "(accepted)");
  EXPECT_EQ(refusal_of_entry(R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})", 4), "(accepted)");
  EXPECT_EQ(refusal_of_entry(R"({"dtype":"F32","shape":[3,0,5],"data_offsets":[0,0]})", 0), "(accepted)");
  EXPECT_EQ(refusal(safetensors(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                R"("end":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
                                R"("start":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                                "xx")),
            "(accepted)");
}

TEST(SafetensorsHeader, LengthsThatLie) {
  EXPECT_THAT(refusal(""), HasSubstr("has 0 bytes"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("has 7 bytes"));
  EXPECT_THAT(refusal(length_bytes(0)), HasSubstr("byte 8 does not begin with {"));
  EXPECT_THAT(refusal(length_bytes(3) + "{}"), HasSubstr("should have 3 bytes, but only 2 follow"));
  EXPECT_THAT(refusal(length_bytes(1) + "{}"), HasSubstr("at byte 9"));
  EXPECT_THAT(refusal(length_bytes(100'000'001) + "{}"),
              HasSubstr("100000001, more than the format's limit"));
  EXPECT_THAT(refusal(length_bytes(~uint64_t{0}) + "{}"), HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal(length_bytes(~uint64_t{0} - 7) + "{}"), HasSubstr("more than the format's limit"));
}

TEST(SafetensorsHeader, TextThatIsNotTheHeadersJson) {
  EXPECT_THAT(refusal(safetensors("{\"w\":")), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(safetensors("{\"w\":")), HasSubstr("at byte 13"));
  EXPECT_THAT(refusal(safetensors("{} {}")), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(safetensors("[]")), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal(safetensors(" {}")), HasSubstr("does not begin with {"));
  EXPECT_THAT(refusal(safetensors("{\"\xff\":{}}")), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(safetensors("{\"w\":[]}")), HasSubstr("\"w\": an array is not expected"));
  EXPECT_THAT(refusal(safetensors("{\"w\":7}")), HasSubstr("\"w\": the number 7 is not expected"));
  EXPECT_THAT(refusal(safetensors("{\"w\":null}")), HasSubstr("null"));
  EXPECT_THAT(refusal(safetensors("{\"w\":true}")), HasSubstr("boolean"));
  EXPECT_THAT(refusal(safetensors("{\"w\":\"x\"}")), HasSubstr("the string \"x\""));
  EXPECT_THAT(refusal(safetensors("{\"w\":" + std::string(100'000, '[') + "}")),
              HasSubstr("an array is not expected (at byte 14)"));
  EXPECT_THAT(refusal(safetensors("{\"w\":{\"shape\":[[1]]}}")), HasSubstr("an array is not expected"));
  EXPECT_THAT(refusal(safetensors("{\"w\":{\"shape\":[{}]}}")), HasSubstr("an object is not expected"));
}

TEST(SafetensorsHeader, EntriesThatAreIncompleteOrDouble) {
  EXPECT_THAT(refusal_of_entry("{}", 0), HasSubstr("one of dtype, shape, data_offsets is missing"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"F32","shape":[1]})", 4), HasSubstr("missing"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":1})", 4),
              HasSubstr("\"extra\" is none of"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})", 4),
              HasSubstr("\"dtype\" stands twice"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]})", 4),
              HasSubstr("\"shape\" stands twice"));
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal(safetensors("{\"w\":" + entry + ",\"w\":" + entry + "}", "x")),
              HasSubstr("\"w\" stands twice"));
}

TEST(SafetensorsHeader, DTypesThatAreNotKnown) {
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"F64","shape":[1],"data_offsets":[0,8]})", 8),
              HasSubstr("\"w\": dtype F64 cannot be read"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"f32","shape":[1],"data_offsets":[0,4]})", 4),
              HasSubstr("dtype f32"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":4,"shape":[1],"data_offsets":[0,4]})", 4),
              HasSubstr("the number 4"));
}

TEST(SafetensorsHeader, ShapesThatOverflowOrAreNoneAtAll) {
  const std::string half = "4294967296";  // 2^32
  EXPECT_THAT(
      refusal_of_entry(R"({"dtype":"U8","shape":[)" + half + "," + half + R"(],"data_offsets":[0,0]})", 0),
      HasSubstr("overflows"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"I64","shape":[9223372036854775807],"data_offsets":[0,1]})", 1),
              HasSubstr("overflows"));
  EXPECT_THAT(
      refusal_of_entry(R"({"dtype":"U8","shape":[0,)" + half + "," + half + R"(],"data_offsets":[0,0]})", 0),
      HasSubstr("overflows"))
      << "an empty tensor, but its strides would overflow";
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,1]})", 1),
              HasSubstr("larger than 2^63 - 1"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]})", 1),
              HasSubstr("not a whole number"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"U8","shape":[-1],"data_offsets":[0,1]})", 1),
              HasSubstr("-1 is negative"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"U8","shape":[1.0],"data_offsets":[0,1]})", 1),
              HasSubstr("1.0 is not a whole number"));
  EXPECT_THAT(refusal_of_entry(R"({"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]})", 1),
              HasSubstr("more than 8 dimensions"));
}

TEST(SafetensorsHeader, RangesThatLie) {
  const auto range = [](const std::string& offsets) {
    return R"({"dtype":"U8","shape":[4],"data_offsets":)" + offsets + "}";
  };
  EXPECT_THAT(refusal_of_entry(range("[0,4]"), 3), HasSubstr("bytes 0 to 4 of 3 bytes of data"));
  EXPECT_THAT(refusal_of_entry(range("[4,0]"), 4), HasSubstr("bytes 4 to 0"));
  EXPECT_THAT(refusal_of_entry(range("[0,18446744073709551615]"), 4), HasSubstr("18446744073709551615"));
  EXPECT_THAT(refusal_of_entry(range("[0,3]"), 3),
              HasSubstr("takes 4 bytes, but its data_offsets 0 to 3 hold 3"));
  EXPECT_THAT(refusal_of_entry(range("[0,5]"), 5), HasSubstr("takes 4 bytes"));
  EXPECT_THAT(refusal_of_entry(range("[0]"), 4), HasSubstr("has 1 numbers, not 2"));
  EXPECT_THAT(refusal_of_entry(range("[0,4,4]"), 4), HasSubstr("more than 2 numbers"));
  EXPECT_THAT(refusal_of_entry(range("[-1,3]"), 4), HasSubstr("-1 is negative"));
  EXPECT_THAT(refusal_of_entry(range("\"0,4\""), 4), HasSubstr("is not expected"));
}

TEST(SafetensorsHeader, OverlapsAndHoles) {
  const auto two = [](const std::string& first, const std::string& second, size_t data_bytes) {
    return refusal(safetensors(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
                                   R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                               std::string(data_bytes, 'x')));
  };
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "(accepted)");
  EXPECT_THAT(two("[0,4]", "[3,7]", 7),
              HasSubstr("\"b\" begins at byte 3 of the data, inside the tensor that ends at byte 4"));
  EXPECT_THAT(two("[0,4]", "[0,4]", 4), HasSubstr("inside the tensor that ends at"));
  EXPECT_THAT(two("[0,4]", "[5,9]", 9), HasSubstr("after a hole from byte 4"));
  EXPECT_THAT(two("[1,5]", "[5,9]", 9), HasSubstr("after a hole from byte 0"));
  EXPECT_THAT(two("[0,4]", "[4,8]", 9), HasSubstr("end at byte 8 of the data, the file goes on to 9"));
  EXPECT_THAT(refusal(safetensors("{}", "x")), HasSubstr("the file goes on to 1"));
}

TEST(SafetensorsHeader, MetadataThatIsNotText) {
  EXPECT_THAT(refusal(safetensors(R"({"__metadata__":[]})")), HasSubstr("an array is not expected"));
  EXPECT_THAT(refusal(safetensors(R"({"__metadata__":"pt"})")), HasSubstr("the string \"pt\""));
  EXPECT_THAT(refusal(safetensors(R"({"__metadata__":null})")), HasSubstr("null"));
  EXPECT_THAT(refusal(safetensors(R"({"__metadata__":{"a":1}})")), HasSubstr("the number 1"));
  EXPECT_THAT(refusal(safetensors(R"({"__metadata__":{"a":{}}})")), HasSubstr("an object is not expected"));
  EXPECT_THAT(refusal(safetensors(R"({"__metadata__":{"a":"1","a":"2"}})")), HasSubstr("\"a\" twice"));
  EXPECT_THAT(refusal(safetensors(R"({"__metadata__":{},"__metadata__":{}})")), HasSubstr("stands twice"));
}

const std::string kGoodHeader =
    R"({"__metadata__":{"k":"v"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

// Each piece lies in memory of its own, so that a sanitizer sees a read behind it.
TEST(SafetensorsHeader, EveryTruncationIsRefused) {
  const std::string file = safetensors(kGoodHeader, "1234");
  for (size_t size = 0; size < file.size(); ++size) {
    const std::string head(file.data(), size);
    const Result<SafetensorsHeader> header = parse_safetensors_header(head, size);
    ASSERT_FALSE(header.ok()) << size;
    EXPECT_FALSE(header.error().message.empty());
  }
}

TEST(SafetensorsHeader, AChangedByteIsRefusedOrHarmless) {
  const std::string file = safetensors(kGoodHeader, "1234");
  size_t num_refused = 0;
  for (size_t place = 0; place < file.size() - 4; ++place) {
    for (const char byte : {'\0', ' ', '"', '0', '9', '{', ']', '\x7f', '\xff'}) {
      std::string changed = file;
      changed[place] = byte;
      const Result<SafetensorsHeader> header = parse_safetensors_header(changed, changed.size());
      if (!header.ok()) {
        EXPECT_FALSE(header.error().message.empty());
        ++num_refused;
        continue;
      }
      for (const TensorEntry& entry : header->entries)
        EXPECT_LE(header->data_offset + entry.end, changed.size());
    }
  }
  EXPECT_GT(num_refused, 600u);  // of some 800: only names, metadata and spaces can change
}

}  // namespace
}  // namespace lockstep
