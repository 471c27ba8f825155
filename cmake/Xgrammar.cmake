# xgrammar: grammars to token masks, for constrained output. Built from its published source archive, which
# tools/fetch_xgrammar.sh fetches once and checks; nothing here uses the network. Without the source the rest is built as
# ever, and a request that asks for constrained output is refused with the reason.
set(LOCKSTEP_XGRAMMAR_VERSION 0.2.9)
if(DEFINED ENV{XDG_CACHE_HOME})
  set(cache "$ENV{XDG_CACHE_HOME}")
else()
  set(cache "$ENV{HOME}/.cache")
endif()
set(LOCKSTEP_XGRAMMAR_SOURCE "${cache}/lockstep/xgrammar-${LOCKSTEP_XGRAMMAR_VERSION}" CACHE PATH "unpacked source of xgrammar")

if(LOCKSTEP_SANITIZE OR LOCKSTEP_FUZZ)
  message(STATUS "sanitized builds are without xgrammar: output cannot be constrained")
elseif(EXISTS "${LOCKSTEP_XGRAMMAR_SOURCE}/include/xgrammar/compiler.h")
  file(GLOB_RECURSE xgrammar_sources "${LOCKSTEP_XGRAMMAR_SOURCE}/cpp/*.cc")
  list(FILTER xgrammar_sources EXCLUDE REGEX "/cpp/tvm_ffi/")
  add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
  target_include_directories(xgrammar SYSTEM PUBLIC "${LOCKSTEP_XGRAMMAR_SOURCE}/include"
    "${LOCKSTEP_XGRAMMAR_SOURCE}/3rdparty/dlpack/include")
  target_include_directories(xgrammar SYSTEM PRIVATE "${LOCKSTEP_XGRAMMAR_SOURCE}/3rdparty/picojson")
  target_compile_definitions(xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  # Ten files at a time: a third of the work. One defines a name that another has too.
  set_target_properties(xgrammar PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  set_source_files_properties("${LOCKSTEP_XGRAMMAR_SOURCE}/cpp/json_schema_converter.cc" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_compile_options(xgrammar PRIVATE -w -O2)
  set_target_properties(xgrammar PROPERTIES CXX_CLANG_TIDY "" CXX_STANDARD 17)
  target_link_libraries(lockstep_serving PRIVATE xgrammar)
  set_source_files_properties(lockstep/serving/constraints/grammar_compiler.cc PROPERTIES
    COMPILE_DEFINITIONS LOCKSTEP_HAS_XGRAMMAR=1)
else()
  message(STATUS "xgrammar is not at ${LOCKSTEP_XGRAMMAR_SOURCE} (tools/fetch_xgrammar.sh): output cannot be constrained")
endif()
