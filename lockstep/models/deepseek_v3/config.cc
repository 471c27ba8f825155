#include "lockstep/models/deepseek_v3/config.h"

#include "lockstep/models/mla_decoder.h"

namespace lockstep::models::deepseek_v3 {

Result<std::unique_ptr<const ModelDescription>> describe(const Json& json) {
  ConfigReader reader(json);
  MlaDecoderConfig config = read_mla_decoder(reader, "deepseek_v3");
  config.decoder.moe = read_sigmoid_moe(reader, config.decoder.hidden, {});
  return describe_mla_decoder(reader, std::move(config));
}

}  // namespace lockstep::models::deepseek_v3
