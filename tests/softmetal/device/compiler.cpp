#include "device/compiler.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "device/settings.h"

extern char** environ;

namespace softmetal {

namespace {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SOFTMETAL_TSAN 1
#endif
#endif

std::string variant() {
#ifdef SOFTMETAL_TSAN
  return "thread";
#else
  return get(Setting::kCheck) != 0 ? "checked" : "plain";
#endif
}

// A file in memory, as standard input or output of a process.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view text = {})
      : file_(::memfd_create("softmetal", MFD_CLOEXEC)) {
    if (file_ < 0) throw CompileFailure("no memory for the compiler's files");
    for (size_t at = 0; at < text.size();) {
      const ssize_t written = ::write(file_, text.data() + at, text.size() - at);
      if (written <= 0) throw CompileFailure("no memory for the source");
      at += static_cast<size_t>(written);
    }
    ::lseek(file_, 0, SEEK_SET);
  }
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int get() const { return file_; }
  std::string read() const {
    ::lseek(file_, 0, SEEK_SET);
    std::string text;
    char piece[4096];
    for (ssize_t n; (n = ::read(file_, piece, sizeof piece)) > 0;) {
      text.append(piece, static_cast<size_t>(n));
    }
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }

 private:
  int file_;
};

// Without the sanitizer's library, which is of no use to the compiler, and with mslc in reach.
std::vector<std::string> environment() {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable = *at;
    if (variable.starts_with("LD_PRELOAD=") || variable.starts_with("PYTHONPATH=")) continue;
    variables.emplace_back(variable);
  }
  variables.emplace_back("PYTHONPATH=" SOFTMETAL_SOURCE_DIR);
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::string compile(const CompileRequest& request) {
  const char* python = std::getenv("SOFTMETAL_PYTHON");
  std::vector<std::string> arguments{python != nullptr ? python : SOFTMETAL_PYTHON,
                                     "-m",
                                     "mslc",
                                     "--variant",
                                     variant(),
                                     "--metal-version",
                                     std::to_string(request.metal_version)};
  for (const std::string& macro : request.macros) arguments.push_back("-D" + macro);

  const MemoryFile source(request.source);
  const MemoryFile output;
  const MemoryFile messages;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, source.get(), 0);
  ::posix_spawn_file_actions_adddup2(&actions, output.get(), 1);
  ::posix_spawn_file_actions_adddup2(&actions, messages.get(), 2);
  std::vector<std::string> variables = environment();
  pid_t process = 0;
  const int failure = ::posix_spawnp(&process, arguments[0].c_str(), &actions, nullptr,
                                     pointers(arguments).data(), pointers(variables).data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw CompileFailure("cannot run " + arguments[0] + ": " + std::strerror(failure));
  }
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string text = messages.read();
    throw CompileFailure(text.empty() ? "mslc was killed" : text);
  }
  return output.read();
}

}  // namespace softmetal
