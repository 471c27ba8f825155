# Every third-party library, found once. All are packages of Debian 12 and Ubuntu 24.04 (tools/install_packages.sh), but
# for xgrammar, which is built from its published source (Xgrammar.cmake).
find_package(Threads REQUIRED)
find_package(Boost 1.81 CONFIG REQUIRED COMPONENTS headers)
find_package(nlohmann_json 3.11 CONFIG REQUIRED)
find_package(fmt 9 CONFIG REQUIRED)
find_package(spdlog 1.10 CONFIG REQUIRED)
find_package(CLI11 2.1 CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)

function(lockstep_pkg name module)
  pkg_check_modules(LOCKSTEP_${name} REQUIRED IMPORTED_TARGET GLOBAL ${module})
  add_library(lockstep::${name} ALIAS PkgConfig::LOCKSTEP_${name})
endfunction()
lockstep_pkg(pcre2 libpcre2-8)
lockstep_pkg(utf8proc libutf8proc)
lockstep_pkg(hwy libhwy)

if(LOCKSTEP_TESTS)
  find_package(GTest CONFIG REQUIRED)
endif()
