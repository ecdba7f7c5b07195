#pragma once

#include <Foundation/NSCollections.h>

typedef NSString* NSErrorDomain;
typedef NSString* NSErrorUserInfoKey;

extern "C" const NSErrorUserInfoKey NSLocalizedDescriptionKey;

@interface NSError : NSObject {
  NSErrorDomain domain_;
  NSInteger code_;
  NSDictionary* user_info_;
}
+ (instancetype)errorWithDomain:(NSErrorDomain)domain
                           code:(NSInteger)code
                       userInfo:(NSDictionary*)dict;
@property(readonly, copy) NSErrorDomain domain;
@property(readonly) NSInteger code;
@property(readonly, copy) NSDictionary* userInfo;
@property(readonly, copy) NSString* localizedDescription;
@end
