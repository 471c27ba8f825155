# The compiler, its warnings, sanitizers and ccache, for every target.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "Lockstep needs g++ 12 or newer; this is g++ ${CMAKE_CXX_COMPILER_VERSION}. "
                      "Name another one with -DCMAKE_CXX_COMPILER=g++-12.")
endif()
# nvcc has a set of its own (cmake/Cuda.cmake).
function(lockstep_cxx_options)
  foreach(option IN LISTS ARGN)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${option}>)
  endforeach()
endfunction()
lockstep_cxx_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of GCC 12 and 13 on std::string and std::vector (GCC bugs 105329, 105562) and on references to views.
  lockstep_cxx_options(-Wno-restrict -Wno-maybe-uninitialized)
  if(LOCKSTEP_UNITY)  # a file of a folder is no header
    lockstep_cxx_options(-Wno-subobject-linkage)
  endif()
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    lockstep_cxx_options(-Wno-dangling-reference)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  lockstep_cxx_options(-Wno-deprecated-declarations)  # libstdc++ 12's own std::stable_sort uses what it deprecates
endif()
# Structs with default members are made by designated initializers of the members that differ.
lockstep_cxx_options(-Wno-missing-field-initializers)
# The same expression must round the same way in every kernel that a test compares.
lockstep_cxx_options(-ffp-contract=off)

if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
# Precompiled headers, in a form that ccache can keep.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  lockstep_cxx_options("SHELL:-Xclang -fno-pch-timestamp")
else()
  lockstep_cxx_options(-fpch-preprocess)
endif()
# Tests are built more often than they run for long: most of the time would go into optimising GoogleTest and what the
# sanitizers add to it.
set(LOCKSTEP_TEST_OPTIONS -O1)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # false alarms inside libstdc++'s strings, which precompiled headers uncover
  list(APPEND LOCKSTEP_TEST_OPTIONS -Wno-array-bounds -Wno-stringop-overflow)
endif()
if(LOCKSTEP_SANITIZE)
  set(LOCKSTEP_TEST_OPTIONS -O0)
endif()

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  # What ccache asks for before it keeps objects with precompiled headers, and paths as seen from the build's folder, so
  # that clones share objects.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
    CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${LOCKSTEP_CCACHE})
endif()
