# The software Metal device, for a project that builds Objective-C++ on it.
include(${CMAKE_CURRENT_LIST_DIR}/objcxx.cmake)
add_subdirectory(${CMAKE_CURRENT_LIST_DIR} softmetal)
