#include "device/settings.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device/violation.h"

namespace softmetal {

namespace {

struct Entry {
  const char* name;
  int64_t initial;
};

constexpr std::array<Entry, static_cast<size_t>(Setting::kCount)> kEntries{{
    {"seed", 0},
    {"threads", 0},
    {"check", 0},
    {"page_size", 16384},
    {"max_buffer_length", int64_t{1} << 36},
    {"fail_command_buffer", 0},
    {"fail_compile", 0},
    {"delay_completion_us", 0},
    {"event_timeout_ms", 60'000},
    {"os_major", 26},
    {"gpu_family", 9},
    {"tensors", 0},
    {"no_device", 0},
}};

class Values {
 public:
  Values() {
    for (size_t i = 0; i < kEntries.size(); ++i) {
      std::string variable = "SOFTMETAL_";
      for (const char* c = kEntries[i].name; *c != 0; ++c) {
        variable += *c == '_' ? '_' : static_cast<char>(*c - 'a' + 'A');
      }
      const char* text = std::getenv(variable.c_str());
      values_[i] =
          text == nullptr || *text == 0 ? kEntries[i].initial : std::strtoll(text, nullptr, 0);
    }
  }
  std::atomic<int64_t>& at(Setting setting) { return values_[static_cast<size_t>(setting)]; }

 private:
  std::array<std::atomic<int64_t>, kEntries.size()> values_;
};

Values& values() {
  static Values instance;
  return instance;
}

Setting find(const char* name) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (std::strcmp(kEntries[i].name, name) == 0) return static_cast<Setting>(i);
  }
  violation("there is no setting named %s", name);
}

}  // namespace

int64_t get(Setting setting) {
  return values().at(setting).load(std::memory_order_relaxed);
}

void set(Setting setting, int64_t value) {
  values().at(setting).store(value);
}

bool count_down(Setting setting) {
  std::atomic<int64_t>& value = values().at(setting);
  int64_t now = value.load();
  while (now > 0 && !value.compare_exchange_weak(now, now - 1)) {
  }
  return now == 1;
}

}  // namespace softmetal

void softmetal_set(const char* name, int64_t value) {
  softmetal::set(softmetal::find(name), value);
}

int64_t softmetal_get(const char* name) {
  return softmetal::get(softmetal::find(name));
}

long softmetal_page_size() {
  return softmetal::get(softmetal::Setting::kPageSize);
}
