#import <Foundation/Foundation.h>

const NSErrorUserInfoKey NSLocalizedDescriptionKey = @"NSLocalizedDescription";

@implementation NSError
+ (instancetype)errorWithDomain:(NSErrorDomain)domain
                           code:(NSInteger)code
                       userInfo:(NSDictionary*)dict {
  NSError* error = [[self alloc] init];
  error->domain_ = [domain retain];
  error->code_ = code;
  error->user_info_ = [dict retain];
  return [error autorelease];
}
- (void)dealloc {
  [domain_ release];
  [user_info_ release];
  [super dealloc];
}
- (NSErrorDomain)domain {
  return domain_;
}
- (NSInteger)code {
  return code_;
}
- (NSDictionary*)userInfo {
  return user_info_;
}
- (NSString*)localizedDescription {
  NSString* text = [user_info_ objectForKey:NSLocalizedDescriptionKey];
  return text != nil ? text : [NSString stringWithFormat:@"%@ error %ld", domain_, code_];
}
- (NSString*)description {
  return [self localizedDescription];
}
@end
