#include "lockstep/models/deepseek_v32/config.h"

#include "lockstep/models/mla_decoder.h"

namespace lockstep::models::deepseek_v32 {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  MlaDecoderConfig config = read_mla_decoder(reader, "deepseek_v32");
  config.decoder.moe = read_sigmoid_moe(reader, config.decoder.hidden, {.num_shared_experts = 1});
  const int64_t chosen = reader.integer_or("index_topk", 2048, 1, int64_t{1} << 30);
  if (chosen < config.decoder.context_length)
    config.notes.push_back(fmt::format(
        "up to {0} tokens of context the result is the model's own; beyond, it attends to all tokens where "
        "the "
        "model would choose {0} of them (index_topk), and logits differ: --context-length {0} keeps to the "
        "former",
        chosen));
  return describe_mla_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::deepseek_v32
