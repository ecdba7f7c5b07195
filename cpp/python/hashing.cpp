// SHA-256 of Python's bytes, one message or two at once.
#include <pybind11/pybind11.h>

#include <mutex>
#include <optional>
#include <string>

#include "base/sha256.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace mference {

namespace {

// Less than this is hashed sooner than another thread could begin.
constexpr size_t kWorthReleasing = 4096;

// The bytes of any contiguous object, held in place while this exists.
class Bytes {
 public:
  explicit Bytes(const py::buffer& source) {
    if (PyObject_GetBuffer(source.ptr(), &view_, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  }
  ~Bytes() { PyBuffer_Release(&view_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  size_t size() const { return static_cast<size_t>(view_.len); }
  std::span<const std::byte> span() const {
    return {static_cast<const std::byte*>(view_.buf), size()};
  }

 private:
  Py_buffer view_;
};

// Several threads may use one, as they may one of hashlib's. A lock is never kept while waiting for
// the interpreter's.
struct Hash {
  Sha256 sha256;
  std::mutex lock;
};

void update(Hash& hash, const py::buffer& data) {
  const Bytes bytes(data);
  std::optional<py::gil_scoped_release> release;
  if (bytes.size() > kWorthReleasing) release.emplace();
  const std::scoped_lock lock(hash.lock);
  hash.sha256.update(bytes.span());
}

void update_both(Hash& a, const py::buffer& data_a, Hash& b, const py::buffer& data_b) {
  if (&a == &b) throw py::value_error("update_pair takes two different Sha256 objects");
  const Bytes bytes_a(data_a);
  const Bytes bytes_b(data_b);
  std::optional<py::gil_scoped_release> release;
  if (bytes_a.size() + bytes_b.size() > kWorthReleasing) release.emplace();
  const std::scoped_lock lock(a.lock, b.lock);
  update_pair(a.sha256, bytes_a.span(), b.sha256, bytes_b.span());
}

std::string hexdigest(Hash& hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  const std::scoped_lock lock(hash.lock);
  std::string text;
  for (const std::byte byte : hash.sha256.digest()) {
    text += kDigits[std::to_integer<int>(byte >> 4)];
    text += kDigits[std::to_integer<int>(byte & std::byte{0xf})];
  }
  return text;
}

}  // namespace

void bind_hashing(py::module_& module) {
  py::module_ hashing = module.def_submodule("hashing", "SHA-256 of one message or two at once.");
  hashing.def("accelerated", &Sha256::accelerated,
              "Whether this processor has instructions for SHA-256, which Sha256 needs.");
  py::class_<Hash>(hashing, "Sha256", "The SHA-256 of a message that comes in parts.")
      .def(py::init<>())
      .def("update", &update, py::arg("data"), "Appends to the message.")
      .def("hexdigest", &hexdigest, "The digest of what came so far.");
  hashing.def("update_pair", &update_both, py::arg("a"), py::arg("data_a"), py::arg("b"),
              py::arg("data_b"), "a.update(data_a) and b.update(data_b) at the same time.");
}

}  // namespace mference
