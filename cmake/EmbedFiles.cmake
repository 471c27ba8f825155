# Compiles the chat page's files into the serving room, so that the program needs no folder beside it. Included once, after
# the rooms are made; runs itself again as a script (cmake -P) at build time to write the source file.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(page ${PROJECT_SOURCE_DIR}/lockstep/serving/web/page)
  set(embedded ${PROJECT_BINARY_DIR}/generated/page_files.cc)
  file(GLOB page_files CONFIGURE_DEPENDS ${page}/*)
  add_custom_command(
    OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -DPAGE=${page} -DOUTPUT=${embedded} -P ${CMAKE_CURRENT_LIST_FILE}
    DEPENDS ${page_files} ${CMAKE_CURRENT_LIST_FILE}
    COMMENT "Embedding the chat page" VERBATIM)
  target_sources(lockstep_serving PRIVATE ${embedded})
  return()
endif()

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

set(arrays "")
set(rows "")
file(GLOB names RELATIVE ${PAGE} ${PAGE}/*)
list(SORT names)
foreach(name IN LISTS names)
  string(REGEX REPLACE ".*\\." "" extension ${name})
  if(NOT DEFINED type_${extension})
    message(FATAL_ERROR "${PAGE}/${name}: no content type is known for .${extension}; name one in cmake/EmbedFiles.cmake")
  endif()
  string(MAKE_C_IDENTIFIER "k_${name}" symbol)
  set(path "/web/${name}")
  if(name STREQUAL "index.html")
    set(path "/")
  endif()
  file(SHA256 ${PAGE}/${name} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  file(READ ${PAGE}/${name} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "const unsigned char ${symbol}[] = {\n${bytes}};\n")
  string(APPEND rows "      {\"${path}\", \"${type_${extension}}\", \"${hash}\", text_of(${symbol})},\n")
endforeach()

file(WRITE ${OUTPUT} "// Written by cmake/EmbedFiles.cmake.
#include <cstddef>

#include \"lockstep/serving/web/web.h\"

namespace lockstep::serving::web {
namespace {

${arrays}
template <std::size_t N>
std::string_view text_of(const unsigned char (&bytes)[N]) {
  return {reinterpret_cast<const char*>(bytes), N};
}

}  // namespace

std::span<const PageFile> page_files() {
  static const PageFile kFiles[] = {
${rows}  };
  return kFiles;
}

}  // namespace lockstep::serving::web
")
