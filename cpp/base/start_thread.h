// Starts a thread.
#pragma once

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/errors.h"

namespace mference {

// Raises DeviceError where the system has no thread left to give.
template <class Body>
std::thread start_thread(Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw DeviceError(std::string("cannot start another thread: ") + error.what() +
                      "; use fewer threads");
  }
}

}  // namespace mference
