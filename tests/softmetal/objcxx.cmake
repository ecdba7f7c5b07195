# Enables Objective-C++ with the compiler that the software Metal device is written for.
find_program(SOFTMETAL_CLANG NAMES clang++-19 REQUIRED
  DOC "clang++ that compiles Objective-C++ and kernels: apt-get install clang-19")
set(CMAKE_OBJCXX_COMPILER ${SOFTMETAL_CLANG} CACHE FILEPATH "")
enable_language(OBJCXX)
