// Exceptions of the core. The bindings raise each as the Python class of the same name.
#pragma once

#include <stdexcept>
#include <string>

namespace mference {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class ExpertFillError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

class GenerationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class TensorNotFound : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace mference
