// Drives the device from Python as the product does: one method for each thing that tests do.
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "device/ref.h"
#include "device/settings.h"

namespace py = pybind11;
using softmetal::Pool;
using softmetal::Ref;

namespace {

std::string reason(NSError* error) {
  return error == nil ? "no reason given" : [[error localizedDescription] UTF8String];
}

NSString* to_objc(const std::string& text) {
  return [NSString stringWithUTF8String:text.c_str()];
}

MTLSize size(const std::array<size_t, 3>& s) {
  return MTLSizeMake(s[0], s[1], s[2]);
}

struct Buffer {
  Ref<id<MTLBuffer>> buffer;
  py::array view(const py::object& dtype, const std::vector<ssize_t>& shape, size_t offset) const {
    return py::array(py::dtype::from_args(dtype), shape, {},
                     static_cast<char*>([buffer.get() contents]) + offset, py::cast(this));
  }
};

struct Event {
  Ref<id<MTLSharedEvent>> event;
  bool wait(uint64_t value, uint64_t milliseconds) {
    const py::gil_scoped_release unlocked;
    return [event.get() waitUntilSignaledValue:value timeoutMS:milliseconds];
  }
  // The value that a listener was told of, or nothing within the time.
  std::optional<uint64_t> notified(uint64_t value, uint64_t milliseconds) {
    const py::gil_scoped_release unlocked;
    const auto told = std::make_shared<std::atomic<uint64_t>>(0);
    const auto listener =
        Ref<MTLSharedEventListener*>::adopt([[MTLSharedEventListener alloc] init]);
    [event.get() notifyListener:listener.get()
                        atValue:value
                          block:^(id<MTLSharedEvent>, uint64_t reached) {
                            told->store(reached);
                          }];
    for (uint64_t i = 0; i < milliseconds && told->load() == 0; ++i) ::usleep(1000);
    return told->load() == 0 ? std::nullopt : std::optional<uint64_t>(told->load());
  }
};

struct Pipeline {
  Ref<id<MTLComputePipelineState>> state;
};

using Argument = std::variant<std::monostate, std::pair<Buffer*, size_t>, Buffer*, py::bytes>;

struct Commands {
  Ref<id<MTLCommandBuffer>> buffer;
  Ref<id<MTLComputeCommandEncoder>> encoder;
  std::shared_ptr<std::atomic<int>> handled = std::make_shared<std::atomic<int>>(0);

  id<MTLComputeCommandEncoder> open() {
    if (!encoder) {
      encoder = Ref<id<MTLComputeCommandEncoder>>::share([buffer.get() computeCommandEncoder]);
    }
    return encoder.get();
  }
  void end() {
    if (!encoder) return;
    [encoder.get() endEncoding];
    encoder = {};
  }
  void bind(const std::vector<Argument>& arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (const auto* whole = std::get_if<Buffer*>(&arguments[i])) {
        [open() setBuffer:(*whole)->buffer.get() offset:0 atIndex:i];
      } else if (const auto* part = std::get_if<std::pair<Buffer*, size_t>>(&arguments[i])) {
        [open() setBuffer:part->first->buffer.get() offset:part->second atIndex:i];
      } else if (const auto* bytes = std::get_if<py::bytes>(&arguments[i])) {
        const std::string text = *bytes;
        [open() setBytes:text.data() length:text.size() atIndex:i];
      }
    }
  }
  void dispatch(const Pipeline& pipeline, const std::vector<Argument>& arguments,
                const std::array<size_t, 3>& groups, const std::array<size_t, 3>& threads,
                const std::vector<size_t>& threadgroup_bytes, bool ragged) {
    const Pool pool;
    [open() setComputePipelineState:pipeline.state.get()];
    bind(arguments);
    for (size_t i = 0; i < threadgroup_bytes.size(); ++i) {
      if (threadgroup_bytes[i] == 0) continue;
      [open() setThreadgroupMemoryLength:threadgroup_bytes[i] atIndex:i];
    }
    if (ragged) {
      [open() dispatchThreads:size(groups) threadsPerThreadgroup:size(threads)];
    } else {
      [open() dispatchThreadgroups:size(groups) threadsPerThreadgroup:size(threads)];
    }
  }
  void wait_event(const Event& event, uint64_t value, bool end_first) {
    const Pool pool;
    if (end_first) end();
    [buffer.get() encodeWaitForEvent:event.event.get() value:value];
  }
  void signal_event(const Event& event, uint64_t value, bool end_first) {
    const Pool pool;
    if (end_first) end();
    [buffer.get() encodeSignalEvent:event.event.get() value:value];
  }
  void commit(bool end_first) {
    const Pool pool;
    if (end_first) end();
    const auto done = handled;
    [buffer.get() addCompletedHandler:^(id<MTLCommandBuffer>) {
      done->store(1);
    }];
    [buffer.get() commit];
  }
  void recommit() {
    const Pool pool;
    [buffer.get() commit];
  }
  void wait() {
    {
      const py::gil_scoped_release unlocked;
      [buffer.get() waitUntilCompleted];
    }
    const Pool pool;
    if ([buffer.get() status] == MTLCommandBufferStatusError) {
      throw std::runtime_error(reason([buffer.get() error]));
    }
  }
};

struct Library {
  Ref<id<MTLLibrary>> library;
  Ref<id<MTLDevice>> device;

  std::vector<std::string> names() {
    const Pool pool;
    std::vector<std::string> result;
    NSArray* names = [library.get() functionNames];
    for (NSUInteger i = 0; i < [names count]; ++i) {
      result.emplace_back([[names objectAtIndex:i] UTF8String]);
    }
    return result;
  }
  Pipeline pipeline(const std::string& name,
                    const std::map<size_t, std::variant<bool, int32_t, double>>& constants) {
    const Pool pool;
    NSError* error = nil;
    const auto values =
        Ref<MTLFunctionConstantValues*>::adopt([[MTLFunctionConstantValues alloc] init]);
    for (const auto& [index, value] : constants) {
      if (const auto* flag = std::get_if<bool>(&value)) {
        [values.get() setConstantValue:flag type:MTLDataTypeBool atIndex:index];
      } else if (const auto* number = std::get_if<int32_t>(&value)) {
        [values.get() setConstantValue:number type:MTLDataTypeInt atIndex:index];
      } else {
        const auto real = static_cast<float>(std::get<double>(value));
        [values.get() setConstantValue:&real type:MTLDataTypeFloat atIndex:index];
      }
    }
    const auto function =
        Ref<id<MTLFunction>>::adopt([library.get() newFunctionWithName:to_objc(name)
                                                        constantValues:values.get()
                                                                 error:&error]);
    if (!function) throw std::runtime_error(reason(error));
    auto state = Ref<id<MTLComputePipelineState>>::adopt(
        [device.get() newComputePipelineStateWithFunction:function.get() error:&error]);
    if (!state) throw std::runtime_error(reason(error));
    return {std::move(state)};
  }
};

struct Queue {
  Ref<id<MTLCommandQueue>> queue;
  Commands commands(bool retained) {
    const Pool pool;
    return {Ref<id<MTLCommandBuffer>>::share(
                retained ? [queue.get() commandBuffer]
                         : [queue.get() commandBufferWithUnretainedReferences]),
            {}};
  }
};

struct Device {
  Ref<id<MTLDevice>> device = Ref<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice());

  Device() {
    if (!device) throw std::runtime_error("there is no Metal device");
  }
  Queue queue() { return {Ref<id<MTLCommandQueue>>::adopt([device.get() newCommandQueue])}; }
  Event event() { return {Ref<id<MTLSharedEvent>>::adopt([device.get() newSharedEvent])}; }
  std::optional<Buffer> buffer(size_t length) {
    auto made =
        Ref<id<MTLBuffer>>::adopt([device.get() newBufferWithLength:length
                                                            options:MTLResourceStorageModeShared]);
    if (!made) return std::nullopt;
    return Buffer{std::move(made)};
  }
  // Over memory of the host, which lives as long as the buffer.
  std::optional<Buffer> wrap(size_t length, size_t misalignment) {
    const size_t mapped = length + (2 << 20);
    void* mapping =
        ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char* first = static_cast<char*>(mapping);
    first += 65536 - reinterpret_cast<uintptr_t>(first) % 65536 + misalignment;
    auto made = Ref<id<MTLBuffer>>::adopt([device.get()
        newBufferWithBytesNoCopy:first
                          length:length
                         options:MTLResourceStorageModeShared
                     deallocator:^(void*, NSUInteger) {
                       ::munmap(mapping, mapped);
                     }]);
    if (!made) return std::nullopt;
    return Buffer{std::move(made)};
  }
  Library library(const std::string& source, const std::map<std::string, std::string>& macros) {
    const Pool pool;
    NSError* error = nil;
    const auto options = Ref<MTLCompileOptions*>::adopt([[MTLCompileOptions alloc] init]);
    [options.get() setLanguageVersion:MTLLanguageVersion3_1];
    std::vector<id> names;
    std::vector<id> values;
    for (const auto& [name, value] : macros) {
      names.push_back(to_objc(name));
      values.push_back(to_objc(value));
    }
    [options.get() setPreprocessorMacros:[NSDictionary dictionaryWithObjects:values.data()
                                                                     forKeys:names.data()
                                                                       count:names.size()]];
    NSString* text = to_objc(source);
    id<MTLLibrary> made;
    {
      const py::gil_scoped_release unlocked;
      made = [device.get() newLibraryWithSource:text options:options.get() error:&error];
    }
    if (made == nil) throw std::runtime_error(reason(error));
    return {Ref<id<MTLLibrary>>::adopt(made), device};
  }
};

// Sends a message to a buffer that was released for the last time.
void use_after_release() {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLBuffer> buffer = [device newBufferWithLength:16 options:MTLResourceStorageModeShared];
  [buffer release];
  [buffer length];
}

void autorelease_without_pool() {
  [[[NSObject alloc] init] autorelease];
}

void release_open_encoder() {
  const Pool pool;
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  id<MTLCommandQueue> queue = [device newCommandQueue];
  [[queue commandBuffer] computeCommandEncoder];
}

std::array<long, 4> system_answers() {
  const Pool pool;
  const auto device = Ref<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice());
  return {[[NSProcessInfo processInfo] operatingSystemVersion].majorVersion,
          [device.get() supportsFamily:MTLGPUFamilyApple7],
          [device.get() supportsFamily:MTLGPUFamilyMetal4],
          ::sysconf(_SC_PAGESIZE)};
}

std::string text_of_collections() {
  @autoreleasepool {
    NSDictionary* entries = @{@"one" : @1, @"two" : @"2"};
    NSArray* items = @[ @"a", [entries objectForKey:@"one"], [entries objectForKey:@"two"] ];
    NSString* text = [NSString stringWithFormat:@"%@-%@-%@-%lu-%.2f", [items objectAtIndex:0],
                                                [items objectAtIndex:1], [items objectAtIndex:2],
                                                [items count], 0.5];
    return [text UTF8String];
  }
}

bool exceptions_are_caught() {
  try {
    throw std::runtime_error("caught");
  } catch (const std::runtime_error&) {
    return true;
  }
}

}  // namespace

PYBIND11_MODULE(_softmetal, module) {
  py::class_<Buffer>(module, "Buffer")
      .def("view", &Buffer::view, py::arg("dtype"), py::arg("shape"), py::arg("offset") = 0);
  py::class_<Pipeline>(module, "Pipeline")
      .def_property_readonly(
          "max_threads",
          [](const Pipeline& p) { return [p.state.get() maxTotalThreadsPerThreadgroup]; })
      .def_property_readonly(
          "static_bytes",
          [](const Pipeline& p) { return [p.state.get() staticThreadgroupMemoryLength]; })
      .def_property_readonly(
          "width", [](const Pipeline& p) { return [p.state.get() threadExecutionWidth]; });
  py::class_<Event>(module, "Event")
      .def_property(
          "value", [](const Event& e) { return [e.event.get() signaledValue]; },
          [](const Event& e, uint64_t value) { [e.event.get() setSignaledValue:value]; })
      .def("wait", &Event::wait)
      .def("notified", &Event::notified);
  py::class_<Commands>(module, "Commands")
      .def("dispatch", &Commands::dispatch, py::arg("pipeline"), py::arg("arguments"),
           py::arg("groups"), py::arg("threads"),
           py::arg("threadgroup_bytes") = std::vector<size_t>{}, py::arg("ragged") = false)
      .def("wait_event", &Commands::wait_event, py::arg("event"), py::arg("value"),
           py::arg("end_first") = true)
      .def("signal_event", &Commands::signal_event, py::arg("event"), py::arg("value"),
           py::arg("end_first") = true)
      .def("end", &Commands::end)
      .def("commit", &Commands::commit, py::arg("end_first") = true)
      .def("recommit", &Commands::recommit)
      .def("wait", &Commands::wait)
      .def_property_readonly("handled", [](const Commands& c) { return c.handled->load() != 0; })
      .def_property_readonly("status",
                             [](const Commands& c) { return long([c.buffer.get() status]); })
      .def_property_readonly("seconds", [](const Commands& c) {
        return [c.buffer.get() GPUEndTime] - [c.buffer.get() GPUStartTime];
      });
  py::class_<Library>(module, "Library")
      .def_property_readonly("names", &Library::names)
      .def("pipeline", &Library::pipeline, py::arg("name"),
           py::arg("constants") = std::map<size_t, std::variant<bool, int32_t, double>>{});
  py::class_<Queue>(module, "Queue").def("commands", &Queue::commands, py::arg("retained") = true);
  py::class_<Device>(module, "Device")
      .def(py::init<>())
      .def("queue", &Device::queue)
      .def("event", &Device::event)
      .def("buffer", &Device::buffer)
      .def("wrap", &Device::wrap, py::arg("length"), py::arg("misalignment") = 0)
      .def("library", &Device::library, py::arg("source"),
           py::arg("macros") = std::map<std::string, std::string>{});
  module.def("set", &softmetal_set);
  module.def("get", &softmetal_get);
  module.def("live_objects",
             [](const std::string& name) { return softmetal_live_objects(name.c_str()); });
  module.def("use_after_release", &use_after_release);
  module.def("autorelease_without_pool", &autorelease_without_pool);
  module.def("release_open_encoder", &release_open_encoder);
  module.def("system_answers", &system_answers);
  module.def("text_of_collections", &text_of_collections);
  module.def("exceptions_are_caught", &exceptions_are_caught);
}
