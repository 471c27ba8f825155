#include "lockstep/serving/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <cstdint>
#include <limits>
#include <optional>

namespace lockstep::serving::http {
namespace {

namespace beast_http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::iequals;
using boost::beast::string_view;
using BeastError = beast_http::error;
using BeastField = beast_http::field;

// A body is announced before it comes: what a client merely promises is not allocated.
constexpr size_t kMaxReservedBody = size_t{64} << 10;

// The end of a chunked body is at least "0\r\n\r\n". Beast's parser asserts that it never sees less of it at
// once.
constexpr size_t kShortestChunkedRest = 5;

// Beast's grammar, with its findings put into a Request.
class Grammar final : public beast_http::basic_parser<true> {
 public:
  explicit Grammar(const ParserLimits& limits)
      : max_headers_(limits.max_headers), max_header_bytes_(limits.max_header_bytes) {
    header_limit(static_cast<uint32_t>(
        std::min<size_t>(limits.max_header_bytes, std::numeric_limits<uint32_t>::max())));
    body_limit(limits.max_body_bytes);
  }

  Request request;
  bool has_request_line = false;
  bool too_many_headers = false;
  int version = 0;  // 10 or 11
  int num_hosts = 0;
  std::optional<std::string> transfer_encoding;  // all lines of it, joined by commas
  std::string expect;

 private:
  void on_request_impl(beast_http::verb, string_view method, string_view target, int v,
                       error_code& ec) override {
    ec = {};
    request.method = std::string(method);
    request.target = std::string(target);
    version = v;
    has_request_line = true;
  }
  void on_response_impl(int, string_view, int, error_code& ec) override { ec = BeastError::bad_version; }

  void on_field_impl(BeastField field, string_view name, string_view value, error_code& ec) override {
    ec = {};
    if (in_body_) {  // a trailer: must not pass for a header that a check has already looked at
      trailer_bytes_ += name.size() + value.size();
      if (trailer_bytes_ > max_header_bytes_) ec = BeastError::bad_chunk;
      return;
    }
    if (static_cast<int>(request.headers.size()) >= max_headers_) {
      too_many_headers = true;
      ec = BeastError::header_limit;
      return;
    }
    if (field == BeastField::host) ++num_hosts;
    if (field == BeastField::expect) expect = std::string(value);
    if (field == BeastField::transfer_encoding)
      transfer_encoding =
          transfer_encoding ? *transfer_encoding + "," + std::string(value) : std::string(value);
    request.headers.push_back({std::string(name), std::string(value)});
  }
  void on_header_impl(error_code& ec) override {
    ec = {};
    in_body_ = true;
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>& length, error_code& ec) override {
    ec = {};
    if (length) request.body.reserve(std::min<uint64_t>(*length, kMaxReservedBody));
  }
  std::size_t on_body_impl(string_view bytes, error_code& ec) override {
    ec = {};
    request.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, string_view extensions, error_code& ec) override {
    ec = {};
    if (extensions.size() > max_header_bytes_) ec = BeastError::bad_chunk_extension;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, string_view bytes, error_code& ec) override {
    return on_body_impl(bytes, ec);
  }
  void on_finish_impl(error_code& ec) override { ec = {}; }

  const int max_headers_;
  const size_t max_header_bytes_;
  size_t trailer_bytes_ = 0;
  bool in_body_ = false;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether the request line in `head` ends in a well-formed HTTP version that is none of ours.
bool names_another_version(std::string_view head) {
  std::string_view line = head.substr(0, head.find_first_of("\r\n"));
  line = line.substr(std::min(line.size(), line.rfind(' ') + 1));
  if (line == "HTTP/1.0" || line == "HTTP/1.1") return false;
  return line.size() == 8 && line.substr(0, 5) == "HTTP/" && is_digit(line[5]) && line[6] == '.' &&
         is_digit(line[7]);
}

// Splits a request target into path and query. False when it is of no form that a server of its own resources
// answers.
bool split_target(Request& request) {
  std::string_view target = request.target;
  for (const std::string_view scheme : {"http://", "https://"}) {  // absolute-form, as proxies send it
    if (!iequals(string_view(target.data(), std::min(target.size(), scheme.size())),
                 string_view(scheme.data(), scheme.size())))
      continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.size(), target.find_first_of("/?")));
    break;
  }
  const size_t question = target.find('?');
  std::string path(target.substr(0, question));
  if (question != std::string_view::npos) request.query = std::string(target.substr(question + 1));
  if (path.empty() && target.data() != request.target.data()) path = "/";
  const bool ok = (!path.empty() && path[0] == '/') || (path == "*" && request.method == "OPTIONS");
  request.target = std::move(path);
  return ok;
}

}  // namespace

std::string_view Request::header(std::string_view name) const {
  for (const Header& header : headers)
    if (iequals(string_view(header.name), string_view(name.data(), name.size()))) return header.value;
  return {};
}

class RequestParser::Impl {
 public:
  explicit Impl(const ParserLimits& limits) : limits_(limits), grammar_(limits) {}

  size_t feed(std::string_view bytes) {
    size_t used = skip_empty_lines(bytes);
    while (state_ == State::kHead || state_ == State::kBody) {
      const std::string_view rest = bytes.substr(used);
      if (rest.size() < fewest_bytes(rest)) break;
      error_code ec;
      const size_t taken = grammar_.put(boost::asio::buffer(rest.data(), rest.size()), ec);
      used += taken;
      if (ec && ec != BeastError::need_more) {
        fail(ec, rest);
        break;
      }
      check_head_size(taken, rest.substr(taken));
      if (state_ == State::kHead && grammar_.is_header_done()) finish_head();
      if (state_ == State::kBody && grammar_.is_done()) state_ = State::kDone;
      if (ec) {  // needs more
        check_chunk_size(rest.size() - taken);
        break;
      }
    }
    return used;
  }

  State state_ = State::kHead;
  Problem problem_;
  const ParserLimits limits_;
  Grammar grammar_;

 private:
  size_t fewest_bytes(std::string_view rest) const {
    if (state_ == State::kBody && grammar_.chunked()) return kShortestChunkedRest;
    return !grammar_.got_some() && rest == "\r" ? 2 : 1;  // may become an empty line
  }

  // RFC 9112 2.2: a server should ignore an empty line before the request line.
  size_t skip_empty_lines(std::string_view bytes) const {
    size_t used = 0;
    if (grammar_.got_some()) return used;
    while (bytes.substr(used, 2) == "\r\n") used += 2;
    return used;
  }

  // Beast's own limit holds only for what one call sees, and heads may come line by line.
  void check_head_size(size_t taken, std::string_view waiting) {
    if (state_ != State::kHead) return;
    head_bytes_ += taken;
    const size_t known = head_bytes_ + (grammar_.is_header_done() ? 0 : waiting.size());
    if (known > limits_.max_header_bytes) refuse_head(waiting);
  }

  // Beast limits neither a chunk's extensions nor the trailers, and keeps asking for more.
  void check_chunk_size(size_t waiting) {
    if (state_ == State::kBody && grammar_.chunked() && waiting > limits_.max_header_bytes)
      refuse(400, fmt::format("a chunk's first line or the trailers are longer than {} bytes",
                              limits_.max_header_bytes));
  }

  void refuse(int status, std::string message) {
    state_ = State::kFailed;
    problem_ = {status, std::move(message)};
  }

  void refuse_head(std::string_view waiting) {
    if (grammar_.too_many_headers)
      return refuse(431, fmt::format("more than {} headers", limits_.max_headers));
    if (!grammar_.has_request_line &&
        waiting.substr(0, limits_.max_header_bytes).find("\r\n") == std::string_view::npos)
      return refuse(414, fmt::format("the request line is longer than {} bytes", limits_.max_header_bytes));
    refuse(431, fmt::format("request line and headers are longer than {} bytes", limits_.max_header_bytes));
  }

  void fail(const error_code& ec, std::string_view rest) {
    if (ec == BeastError::body_limit)
      return refuse(413,
                    fmt::format("the body is larger than the limit of {} bytes", limits_.max_body_bytes));
    if (ec == BeastError::header_limit) return refuse_head(rest);
    if (ec == BeastError::bad_version && !grammar_.has_request_line && names_another_version(rest))
      return refuse(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    refuse(400, fmt::format("not an HTTP/1.1 request: {}", ec.message()));
  }

  void finish_head() {
    const bool is_http11 = grammar_.version == 11;
    if (grammar_.num_hosts > 1 || (is_http11 && grammar_.num_hosts == 0))
      return refuse(400, fmt::format("a request needs one Host header, this one has {}", grammar_.num_hosts));
    if (grammar_.transfer_encoding) {
      if (!is_http11) return refuse(400, "a Transfer-Encoding in an HTTP/1.0 request");
      const std::string& coding = *grammar_.transfer_encoding;
      if (!iequals(coding, "chunked"))
        return refuse(501, fmt::format("the transfer coding \"{}\" is not known here, only chunked", coding));
    }
    if (!grammar_.expect.empty() && !iequals(grammar_.expect, "100-continue"))
      return refuse(
          417, fmt::format("the expectation \"{}\" is not known here, only 100-continue", grammar_.expect));
    if (!split_target(grammar_.request))
      return refuse(400, fmt::format("the request target \"{}\" is not a path", grammar_.request.target));
    state_ = State::kBody;
  }

  size_t head_bytes_ = 0;
};

RequestParser::RequestParser(const ParserLimits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>(limits)) {}
RequestParser::~RequestParser() = default;

size_t RequestParser::feed(std::string_view bytes) { return impl_->feed(bytes); }
RequestParser::State RequestParser::state() const { return impl_->state_; }
const RequestParser::Problem& RequestParser::problem() const { return impl_->problem_; }
std::string_view RequestParser::method() const { return impl_->grammar_.request.method; }

bool RequestParser::expects_continue() const {
  return impl_->state_ == State::kBody && version() == Version::kHttp11 && !impl_->grammar_.expect.empty();
}

RequestParser::Version RequestParser::version() const {
  return impl_->grammar_.version == 11 ? Version::kHttp11 : Version::kHttp10;
}

RequestParser::Persistence RequestParser::persistence() const {
  return impl_->grammar_.keep_alive() ? Persistence::kKeepAlive : Persistence::kClose;
}

Request RequestParser::take() {
  LOCKSTEP_CHECK(impl_->state_ == State::kDone, "take() of an unfinished request, state {}",
                 static_cast<int>(impl_->state_));
  Request request = std::move(impl_->grammar_.request);
  impl_ = std::make_unique<Impl>(limits_);
  return request;
}

}  // namespace lockstep::serving::http
