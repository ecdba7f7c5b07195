#import <Foundation/Foundation.h>

#include <sys/auxv.h>

#include "device/settings.h"

@implementation NSProcessInfo
+ (NSProcessInfo*)processInfo {
  static NSProcessInfo* instance = [[NSProcessInfo alloc] init];
  return instance;
}
- (NSOperatingSystemVersion)operatingSystemVersion {
  return {static_cast<NSInteger>(softmetal::get(softmetal::Setting::kOsMajor)), 0, 0};
}
- (unsigned long long)physicalMemory {
  return static_cast<unsigned long long>(::sysconf(_SC_PHYS_PAGES)) * ::getauxval(AT_PAGESZ);
}
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)version {
  return self.operatingSystemVersion.majorVersion >= version.majorVersion;
}
@end
