#pragma once
// The chat page: plain files in page/, compiled into the program (cmake/EmbedFiles.cmake), served at / and
// /web/. It talks to POST /v1/chat/completions, GET /live and GET /plan, all of which are somebody else's.
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/serving/http/http.h"

namespace lockstep::serving::web {

struct PageFile {
  std::string_view path;  // "/" for index.html, else "/web/NAME"
  std::string_view content_type;
  std::string_view hash;  // of the bytes
  std::string_view bytes;
};

std::span<const PageFile> page_files();

// The answer to a request for one of the page's files, or none when the target is none of them. GET and HEAD
// only: others get 405. A browser that has the file already gets 304.
std::optional<http::Response> page_response(const http::Request& request);

}  // namespace lockstep::serving::web
