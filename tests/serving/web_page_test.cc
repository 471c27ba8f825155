// The chat page as files: what is served, under which types, and that nothing in it needs another server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "lockstep/base/file.h"
#include "lockstep/serving/web/web.h"
#include "tests/source_dir.h"

namespace lockstep::serving::web {
namespace {

using testing::HasSubstr;
using testing::Not;

http::Request get(std::string target) {
  http::Request request;
  request.method = "GET";
  request.target = std::move(target);
  return request;
}

std::string header_of(const http::Response& response, std::string_view name) {
  for (const http::Header& header : response.headers)
    if (header.name == name) return header.value;
  return "";
}

TEST(WebPage, EveryFileOfTheFolderIsServedAsItIs) {
  size_t num_files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(LOCKSTEP_SOURCE_DIR) + "/lockstep/serving/web/page")) {
    const std::string name = entry.path().filename();
    const auto response = page_response(get(name == "index.html" ? "/" : "/web/" + name));
    ASSERT_TRUE(response.has_value()) << name;
    EXPECT_EQ(response->status, 200);
    EXPECT_EQ(response->body, read_file(entry.path()).value()) << name;
    ++num_files;
  }
  EXPECT_EQ(num_files, page_files().size());
  EXPECT_GE(num_files, 3u);
}

TEST(WebPage, TypesAndPolicy) {
  const auto page = page_response(get("/"));
  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->content_type, "text/html; charset=utf-8");
  EXPECT_THAT(header_of(*page, "Content-Security-Policy"), HasSubstr("default-src 'none'"));
  EXPECT_THAT(header_of(*page, "Content-Security-Policy"), Not(HasSubstr("unsafe")));
  EXPECT_EQ(header_of(*page, "X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(page_response(get("/web/app.js"))->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(page_response(get("/web/style.css"))->content_type, "text/css; charset=utf-8");
}

TEST(WebPage, OtherTargetsAreNotItsOwn) {
  for (const std::string target : {"/web", "/web/", "/web/../web.h", "/index.html", "/v1/models", "*"})
    EXPECT_FALSE(page_response(get(target)).has_value()) << target;
}

TEST(WebPage, IsOnlyRead) {
  http::Request request = get("/");
  request.method = "POST";
  EXPECT_EQ(page_response(request)->status, 405);
  EXPECT_EQ(header_of(*page_response(request), "Allow"), "GET, HEAD");
  request.method = "HEAD";
  EXPECT_EQ(page_response(request)->status, 200);
}

TEST(WebPage, ABrowserThatHasTheFileIsTold) {
  const std::string tag = header_of(*page_response(get("/")), "ETag");
  http::Request again = get("/");
  again.headers = {{"if-none-match", "\"other\", " + tag}};
  EXPECT_EQ(page_response(again)->status, 304);
  EXPECT_EQ(page_response(again)->body, "");
  again.headers = {{"if-none-match", "\"other\""}};
  EXPECT_EQ(page_response(again)->status, 200);
}

TEST(WebPage, NeedsNoOtherServerAndWritesNoMarkup) {
  for (const PageFile& file : page_files()) {
    std::string text(file.bytes);
    for (const std::string_view name :
         {"http://www.w3.org/2000/svg"}) {  // a namespace, which is never fetched
      for (size_t at = text.find(name); at != std::string::npos; at = text.find(name))
        text.erase(at, name.size());
    }
    for (const char* word : {"http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML",
                             "document.write", "eval(", "new Function"})
      EXPECT_THAT(text, Not(HasSubstr(word))) << file.path;
  }
}

}  // namespace
}  // namespace lockstep::serving::web
